// SPDX-License-Identifier: Apache-2.0
#include "client/reading/pin.h"

#include <new>
#include <utility>

#include "base/return_error.h"
#include "client/reading/reader_link.h"
#include "client/reading/remote_step_file.h"

namespace forebay::client {

using protocol::MessageType;

namespace {

std::string step_text(std::uint64_t step) {
  return ", step " + std::to_string(step);
}

}  // namespace

Pin::~Pin() {
  try {
    link_->release(*this);
  } catch (const std::bad_alloc&) {
    link_->give_up();
  }
}

Result<void> Pin::check() const {
  return link_->is_remote() ? Result<void>() : check_held();
}

Result<void> Pin::check_held() const {
  if (!lost_) return {};
  return fail(ErrorCode::step_gone,
              "the server was restarted, or the right to read was taken away: this step is not kept for this reader",
              link_->where() + step_text(step_));
}

void Pin::carry(std::shared_ptr<const CarriedStep> bytes) {
  const std::lock_guard lock(carried_mutex_);
  carried_ = std::move(bytes);
}

std::shared_ptr<const CarriedStep> Pin::carried() const {
  const std::lock_guard lock(carried_mutex_);
  return carried_;
}

Result<void> Pin::check_after_read() const {
  // What lies on another member may be lost with its power, whoever holds the step.
  if (pinned_ && !link_->is_remote() && !reads_member_) return check();
  // The server has copied all bytes while the step was there, and nothing else is ever read of it.
  if (const auto bytes = carried(); bytes && bytes->is_whole()) return {};
  return check_kept();
}

Result<void> Pin::check_kept() const {
  wire::StepCheckT request;
  request.key = std::make_unique<wire::StepKey>(step_, epoch_, 0);
  RETURN_IF_ERROR(link_->ask(MessageType::step_check, request, MessageType::done));
  return {};
}

Result<std::shared_ptr<Segment>> Pin::segment(std::uint32_t number) const {
  const auto member = link_->segments().member_of(number);
  if (member.value_or(0) != 0) {
    reads_member_ = true;
    return link_->member_segment(*this, number, *member);
  }
  if (link_->is_remote()) {
    if (member)
      return link_->segments().make_remote(number, *member, std::make_unique<RemoteStepFile>(*this, number, *member));
    return fail(ErrorCode::corrupt, "the step refers to a segment that the reservation does not have",
                link_->where() + step_text(step_) + ", segment " + std::to_string(number));
  }
  auto found = link_->segment(number);
  if (found || pinned_) return found;
  RETURN_IF_ERROR(check_after_read());
  return found;
}

}  // namespace forebay::client
