// SPDX-License-Identifier: Apache-2.0
// MUNGE: who a process of another node is, as the centre's daemon there says. libmunge is loaded when it is first
// needed, so nothing depends on it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <forebay/result.h>

namespace forebay {

/// libmunge is installed.
bool has_munge();

/// A credential of this process that carries `payload`, which only a process of user `reader` can read, once.
/// unsupported without libmunge; disconnected if munged does not answer.
Result<std::string> munge(std::span<const std::byte> payload, uid_t reader);

/// Who made the credential, and what it carries.
struct Unmunged {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<std::byte> payload;
};

/// May wait for munged. permission_denied for a credential that is forged, too old, meant for somebody else, or was
/// shown before; unsupported and disconnected as above.
Result<Unmunged> unmunge(const std::string& credential);

}  // namespace forebay
