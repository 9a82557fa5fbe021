// SPDX-License-Identifier: Apache-2.0
// Requests for bytes: from segments into memory that the client has offered.
#include <algorithm>

#include "base/fail_point.h"
#include "base/return_error.h"
#include "fabric/fabric_server_path.h"

namespace forebay::fabric {
namespace {

std::uint64_t size_of(const Transfer& transfer) {
  std::uint64_t size = 0;
  for (const Transfer::Piece& piece : transfer.pieces) size += piece.length;
  return size;
}

}  // namespace

Result<void> FabricServerPath::take_offer(const FrameHeader& header) {
  if (header.kind != FrameKind::memory) return fail(ErrorCode::protocol, "the client writes on a path for reading");
  Offer offer{header.ticket, header.length, {}};
  RETURN_IF_ERROR(frames_.receive(std::as_writable_bytes(std::span(&offer.place, 1))));
  // Of a request that has failed meanwhile.
  if (offer.ticket > last_ticket_) offers_.push_back(offer);
  return {};
}

Result<bool> FabricServerPath::begin_request() {
  auto job = jobs_.try_take();
  if (!job) return false;
  if (job->transfer.ticket <= last_ticket_)
    return fail(ErrorCode::protocol, "the client asks under a ticket that it had already");
  Request request;
  request.left = size_of(job->transfer);
  request.transfer = std::move(job->transfer);
  request.failure = std::move(job->refusal);
  if (!request.failure && request.left <= inline_bytes_max) {
    RETURN_IF_ERROR(send_inline(request.transfer));
    last_ticket_ = request.transfer.ticket;
    return true;
  }
  request_ = std::move(request);
  return true;
}

Result<void> FabricServerPath::send_inline(const Transfer& transfer) {
  // Nothing is under way: all buffers are free.
  for (const Transfer::Piece& piece : transfer.pieces) {
    if (piece.length == 0) continue;
    const std::span<std::byte> bytes = buffer(0).first(piece.length);
    if (auto read = piece.file->read_at(piece.offset, bytes); !read)
      return frames_.send_failure(transfer.ticket, read.error());
    FrameHeader header;
    header.kind = FrameKind::data;
    header.ticket = transfer.ticket;
    header.length = bytes.size();
    fail_point("server.data.before_send");
    RETURN_IF_ERROR(frames_.send(header, bytes));
  }
  return {};
}

Result<void> FabricServerPath::fill(Request& request, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const Transfer::Piece& piece = request.transfer.pieces[request.piece];
    const std::uint64_t length = std::min<std::uint64_t>(bytes.size(), piece.length - request.done_of_piece);
    RETURN_IF_ERROR(piece.file->read_at(piece.offset + request.done_of_piece, bytes.first(length)));
    bytes = bytes.subspan(length);
    request.done_of_piece += length;
    request.left -= length;
    if (request.done_of_piece == piece.length) {
      ++request.piece;
      request.done_of_piece = 0;
    }
  }
  return {};
}

Result<bool> FabricServerPath::send_some() {
  bool moved = false;
  while (!sendings_.empty() && sendings_.front().stage == Stage::done) {
    const Sending landed = sendings_.front();
    sendings_.pop_front();
    used_[landed.buffer] = false;
    RETURN_IF_ERROR(frames_.send(FrameKind::landed, landed.offer.ticket, landed.offer.length));
    moved = true;
  }
  if (!request_ && sendings_.empty()) {
    ASSIGN_OR_RETURN(const bool begun, begin_request());
    moved = moved || begun;
  }
  while (request_ && !request_->failure && request_->left > 0 && !offers_.empty()) {
    const auto free = free_buffer();
    if (!free) break;
    Sending sending{offers_.front(), *free, Stage::waiting};
    const std::uint64_t expected = std::min(request_->left, frame_bytes_max);
    if (sending.offer.ticket != request_->transfer.ticket || sending.offer.length != expected)
      return fail(ErrorCode::protocol, "the client offers memory for something else than it asks for");
    offers_.pop_front();
    if (auto filled = fill(*request_, buffer(*free).first(expected)); !filled) {
      request_->failure = filled.error();
      break;
    }
    used_[*free] = true;
    sendings_.push_back(sending);
    moved = true;
  }
  for (Sending& sending : sendings_) {
    if (sending.stage != Stage::waiting) continue;
    fail_point("server.data.before_send");
    ASSIGN_OR_RETURN(
        const bool started,
        endpoint_->write(sending.buffer, buffer(sending.buffer).first(sending.offer.length), sending.offer.place));
    if (!started) {
      refused_to_start_ = true;
      break;
    }
    sending.stage = Stage::started;
  }
  if (request_ && sendings_.empty() && (request_->failure || request_->left == 0)) {
    last_ticket_ = request_->transfer.ticket;
    if (request_->failure) {
      RETURN_IF_ERROR(frames_.send_failure(last_ticket_, *request_->failure));
      std::erase_if(offers_, [this](const Offer& offer) { return offer.ticket <= last_ticket_; });
    }
    request_.reset();
    moved = true;
  }
  return moved;
}

}  // namespace forebay::fabric
