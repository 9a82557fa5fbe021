// SPDX-License-Identifier: Apache-2.0
// A reservation's shares as the file system knows them, for files/: POSIX access lists where it has them, else mode
// bits for one group. See docs/formats/reservation.md, "Who may enter".
#pragma once

#include <string>

#include <forebay/result.h>
#include <forebay/storage/reservation_generated.h>

namespace forebay::storage {

/// unsupported, with the reason, if the file system of `files` cannot express the record's shares. Changes nothing.
Result<void> check_files_access(const reservation::ReservationT& record, const std::string& files);

/// Gives `files` and all below it the access lists that the record's owner and shares say, and directories the defaults
/// for what is made in them later. Repeating it changes nothing. Only widens what shares other than the owner's group's
/// say; symbolic links, other file systems and files of others with a second name are left alone.
Result<void> set_files_access(const reservation::ReservationT& record, const std::string& files);

}  // namespace forebay::storage
