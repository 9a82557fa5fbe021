// SPDX-License-Identifier: Apache-2.0
// Requests to an instance's manager over its socket, in HTTP, without a library for it: one connection for each.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace forebay {

struct HttpAnswer {
  int status = 0;    ///< of HTTP
  std::string head;  ///< its lines, in small letters
  std::string body;

  /// What the head has by this name, which is in small letters; nothing without it.
  std::optional<std::string_view> header(std::string_view name) const;
  std::optional<int> number(std::string_view name) const;  ///< as a number
};

/// How long to wait; 0: for ever.
struct ManagerWaits {
  std::chrono::milliseconds connection{0};  ///< for a manager that has too many connections to accept
  std::chrono::milliseconds part{0};        ///< for each part of the answer
};

/// Sends a whole request, with "Connection: close", to the manager of `root`. Nothing, with the reason in errno, if the
/// manager cannot be reached or its answer is not whole. ENOENT: there is no manager at this root; ECANCELED:
/// `interrupted`, which may be empty and is called while waiting, said so.
std::optional<HttpAnswer> ask_manager(const std::string& root, const std::string& request, ManagerWaits waits,
                                      const std::function<bool()>& interrupted = {});

}  // namespace forebay
