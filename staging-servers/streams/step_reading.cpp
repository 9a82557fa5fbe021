// SPDX-License-Identifier: Apache-2.0
#include "streams/step_reading.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/joined_checksum.h"
#include "base/return_error.h"
#include "protocol/message.h"
#include "space/segments.h"

namespace forebay::server {
namespace {

// What the worker reads before the loop asks about what lies elsewhere.
constexpr std::size_t batch_steps_max = 64;
constexpr std::size_t batch_blocks_max = 4096;

}  // namespace

StepToRead::StepToRead(const Segments& segments, std::shared_ptr<const std::vector<std::string>> paths,
                       std::string stream_name, const storage::StepState& state)
    : reservation(segments.reservation()),
      stream(std::move(stream_name)),
      epoch(state.committed.epoch),
      step(state.committed.step),
      layout(segments.layout()),
      segment_bytes(segments.record().segment_bytes),
      segment_paths(std::move(paths)) {
  const auto packed = protocol::pack(state.committed);
  record.assign(packed.data(), packed.data() + packed.size());
}

std::shared_ptr<const std::vector<std::string>> paths_of(const Segments& segments) {
  auto paths = std::make_shared<std::vector<std::string>>();
  for (std::uint32_t segment = 0; segment < segments.map().segment_count(); ++segment)
    paths->push_back(segments.path(segment));
  return paths;
}

/// Steps of one reservation.
struct StepReading::Batch {
  std::size_t first = 0;
  std::vector<StepRead> found;
};

void StepReading::begin(const Services& services, std::vector<StepToRead> steps, std::optional<std::uint16_t> member,
                        std::weak_ptr<const bool> wanted, Asker asker) {
  std::shared_ptr<StepReading>(new StepReading(services, std::move(steps), member, std::move(wanted), std::move(asker)))
      ->read_some();
}

void StepReading::read_some() {
  if (next_ == steps_.size()) {
    asker_.done();
    return;
  }
  services_.worker.add([self = shared_from_this()] {
    if (self->wanted_.expired()) return;
    auto batch = std::make_shared<Batch>();
    self->read(*batch);
    self->services_.loop.post([self, batch] {
      if (!self->wanted_.expired()) self->ask(batch);
    });
  });
}

void StepReading::read(Batch& batch) {
  batch.first = next_;
  std::size_t blocks = 0;
  while (next_ < steps_.size() && batch.found.size() < batch_steps_max && blocks < batch_blocks_max &&
         steps_[next_].reservation == steps_[batch.first].reservation) {
    StepRead& found = batch.found.emplace_back(StepRead{read(steps_[next_++]), 0, {}});
    if (!found.check) continue;
    if (member_) std::erase_if(found.check->elsewhere, [this](const auto& block) { return !block.lies_on(*member_); });
    blocks += found.check->elsewhere.size();
  }
}

Result<StepCheck> StepReading::read(const StepToRead& step) {
  const SegmentOpener open = [&](std::uint32_t segment) -> Result<std::unique_ptr<File>> {
    if (segment >= step.segment_paths->size())
      return fail(ErrorCode::corrupt, "a step names a segment that does not exist");
    return services_.device.open(step.segment_paths->at(segment), OpenMode::read);
  };
  const std::unique_ptr<journal::StepCommittedT> record(
      flatbuffers::GetRoot<journal::StepCommitted>(step.record.data())->UnPack());
  return check_step(*record, step.layout, step.segment_bytes, open, checked_sets_[{step.reservation, step.stream}],
                    member_ ? BlocksRead::elsewhere : BlocksRead::all);
}

void StepReading::ask(const std::shared_ptr<Batch>& batch) {
  struct Question {
    std::vector<Extent> extents;
    std::vector<std::pair<StepRead*, BlockElsewhere::Piece*>> pieces;
  };
  std::map<std::uint16_t, Question> questions;
  for (StepRead& found : batch->found) {
    if (!found.check) continue;
    for (BlockElsewhere& block : found.check->elsewhere) {
      if (!block.checksum) continue;
      for (BlockElsewhere::Piece& piece : block.pieces) {
        if (piece.checksum) continue;
        Question& question = questions[piece.member];
        question.extents.push_back(piece.extent);
        question.pieces.emplace_back(&found, &piece);
      }
    }
  }
  // It goes on when nobody can answer any more: also where the reservation has gone, and its members with it.
  const std::shared_ptr<void> all_answered(nullptr, [self = shared_from_this(), batch](void*) {
    self->services_.loop.post([self, batch] {
      if (!self->wanted_.expired()) self->tell(*batch);
    });
  });
  OtherMembers* const others = questions.empty() ? nullptr : asker_.others(steps_[batch->first]);
  if (others == nullptr) return;
  for (auto& [member, question] : questions) {
    others->checksum(member, std::move(question.extents),
                     [batch, all_answered, member = member, pieces = std::move(question.pieces)](
                         const Result<std::vector<std::optional<std::uint32_t>>>& checksums) {
                       for (std::size_t i = 0; i < pieces.size(); ++i) {
                         const auto [found, piece] = pieces[i];
                         if (!checksums) {
                           found->not_asked.try_emplace(member, checksums.error().what);
                           continue;
                         }
                         piece->checksum = checksums->at(i);
                         piece->unreadable = !piece->checksum;
                       }
                     });
  }
}

void StepReading::compare(StepRead& found) {
  for (const BlockElsewhere& block : found.check->elsewhere) {
    if (!block.checksum) {
      ++found.without_checksum;
      continue;
    }
    std::uint32_t checksum = 0;
    bool whole = true;
    for (const BlockElsewhere::Piece& piece : block.pieces) {
      if (piece.unreadable) {
        found.check = fail(ErrorCode::corrupt, fmt::format("member {} cannot read it", piece.member), block.where);
        return;
      }
      if (!piece.checksum) {
        whole = false;
        found.not_asked.try_emplace(piece.member, "it was not asked");
        continue;
      }
      checksum = joined_checksum(checksum, *piece.checksum, piece.extent.length);
    }
    if (!whole || checksum == *block.checksum) continue;
    found.check = fail(ErrorCode::corrupt, "checksum mismatch", block.where);
    return;
  }
}

void StepReading::tell(Batch& batch) {
  for (std::size_t i = 0; i < batch.found.size(); ++i) {
    if (batch.found[i].check) compare(batch.found[i]);
    asker_.told(steps_[batch.first + i], batch.found[i]);
  }
  read_some();
}

}  // namespace forebay::server
