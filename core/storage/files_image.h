// SPDX-License-Identifier: Apache-2.0
// files/ of a reservation as an XFS image of its own, mounted by a loop device, which holds its capacity hard: what
// does not fit is refused by the kernel with ENOSPC. Needs root, mkfs.xfs and mount.
#pragma once

#include <cstdint>
#include <string>

#include <forebay/result.h>

namespace forebay::storage {

/// The smallest file system that mkfs.xfs makes.
inline constexpr std::uint64_t files_image_bytes_min = std::uint64_t{300} << 20;

/// permission_denied or unsupported, with the reason, if images cannot be made here.
Result<void> check_files_images();

/// Makes the file system in the image, whose space is allocated.
Result<void> make_files_image(const std::string& image);

/// Mounts the image on a directory.
Result<void> mount_files_image(const std::string& image, const std::string& directory);

/// Takes the mount away from its place at once; what is open in it stays until it is closed. Succeeds if nothing is
/// mounted.
Result<void> unmount_files_image(const std::string& directory);

/// Something is mounted on the directory.
bool is_mount(const std::string& directory);

}  // namespace forebay::storage
