// SPDX-License-Identifier: Apache-2.0
#include "writers/remote_window.h"

#include "base/log.h"
#include "base/return_error.h"
#include "writers/writer_session.h"

namespace forebay::server {
namespace {

bool is_remote(const WriterRank& rank) {
  return rank.session != nullptr && rank.session->connection().is_remote();
}

}  // namespace

bool follow_grants(const WriterRank& rank) {
  if (!is_remote(rank)) return true;
  std::vector<fabric::WriteWindow::Range> ranges;
  // Only those of the server's own segments have a file in it.
  for (const Extent& extent : rank.granted.all()) ranges.push_back({extent.segment, extent.offset, extent.length});
  return rank.session->connection().window()->allow_only(ranges);
}

void open_window(WriterRank& rank, const Segments& segments, const std::vector<Extent>& extents) {
  if (!is_remote(rank)) return;
  const auto& window = rank.session->connection().window();
  for (const Extent& extent : extents) {
    if (window->has_segment(extent.segment) || !segments.is_own(extent.segment)) continue;
    auto file = segments.open_for_client(extent.segment, OpenMode::read_write);
    if (file) {
      window->add_segment(extent.segment, std::move(*file));
    } else {
      log::error("{}", file.error().message());  // the rank's write there is refused
    }
  }
  follow_grants(rank);
}

Result<void> write_carried(const Segments& segments, std::span<const protocol::CarriedPiece> pieces) {
  std::unique_ptr<File> file;
  std::uint32_t opened = 0;
  for (const protocol::CarriedPiece& piece : pieces) {
    if (!file || opened != piece.place.segment()) {
      ASSIGN_OR_RETURN(file, segments.open_file(piece.place.segment(), OpenMode::read_write));
      opened = piece.place.segment();
    }
    RETURN_IF_ERROR(file->write_at(piece.place.offset(), piece.bytes));
  }
  return {};
}

}  // namespace forebay::server
