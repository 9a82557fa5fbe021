// SPDX-License-Identifier: Apache-2.0
// The socket at which local clients find the server. Its name is removed only by the one who made it.
#pragma once

#include <sys/types.h>

#include <string>

#include <forebay/result.h>

#include "base/descriptor.h"

namespace forebay::server {

class ListeningSocket {
 public:
  ListeningSocket() = default;
  /// Listens at this path. Whatever socket has the name goes: the caller knows that no living server uses it.
  static Result<ListeningSocket> at(const std::string& path);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  /// Removes the name, if it is still this socket's.
  ~ListeningSocket();

  bool valid() const noexcept { return descriptor_.valid(); }
  int get() const noexcept { return descriptor_.get(); }
  const std::string& path() const noexcept { return path_; }
  /// False if somebody has removed the name, or given it to something else.
  bool has_its_name() const;
  /// Ends listening, and removes the name, if it is still this socket's.
  void close();

 private:
  std::string path_;
  Descriptor descriptor_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace forebay::server
