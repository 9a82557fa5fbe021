// SPDX-License-Identifier: Apache-2.0
// A reservation at run time: who may use it, its space, and its streams.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <forebay/admin.h>

#include "loop/access_rights.h"
#include "members/home_members.h"
#include "members/member_share.h"
#include "reservations/old_copies.h"
#include "space/reservation_space.h"
#include "storage/files_access.h"
#include "storage/reservation_store.h"

namespace forebay::server {

struct Peer;
class Reservation;
class Stream;
struct StreamServices;

/// What a reservation asks of its server.
class ReservationHost {
 public:
  virtual ~ReservationHost() = default;
  virtual const StreamServices& stream_services() = 0;
  virtual std::uint64_t next_stream_number() = 0;
  /// no_space if this user's reservations have as many streams as they may: each keeps its journal open.
  virtual Result<void> check_place_for_stream(uid_t owner) const = 0;
  /// Writes down which streams could not be checked since the boot.
  virtual Result<void> note_boot() = 0;
  /// Deletes in the background what lies in quarantine.
  virtual void purge_quarantine() = 0;
  /// No reader of before the start can have mapped anything that other members of reservations have.
  virtual bool earlier_readers_are_gone() const = 0;
  /// It has a stream: from now on somebody may wait for space in it.
  virtual void has_streams(Reservation& reservation) = 0;
  /// Ends the connections that read or write there.
  virtual void end_clients(const std::string& reservation, const std::string& why) = 0;
};

class Reservation {
 public:
  Reservation(ReservationHost& host, reservation::ReservationT record);
  ~Reservation();

  const reservation::ReservationT& record() const noexcept { return record_; }
  const std::string& name() const noexcept { return record_.name; }
  ReservationSpace& space() noexcept { return space_; }
  /// Which of its members this server is; 0: its home.
  std::uint16_t own_member() const noexcept { return space_.segments().own_member(); }
  bool is_home() const noexcept { return own_member() == 0; }
  /// refused, with the home's name, where it has only a share of the segments: streams and files are there.
  Result<void> check_home() const;
  /// Why it serves nothing, for people; empty: it does.
  std::string trouble() const { return others_ == nullptr ? std::string() : others_->trouble(); }
  /// refused, and why, if it serves nothing.
  Result<void> check_serves() const;
  /// Null where it is not the home of a reservation over several servers.
  HomeMembers* other_members() noexcept { return others_.get(); }
  /// Null on the home.
  MemberShare* share() noexcept { return share_.get(); }

  /// The one place that says what a peer may do here.
  AccessRights rights_of(const Peer& peer) const;
  /// permission_denied unless the peer may do that; in the words of denial() if it may do nothing.
  Result<void> admit(const Peer& peer, Rights needed) const;
  /// What a peer is told who may not know whether there is such a reservation.
  static Error denial(const std::string& name, const Peer& peer);
  /// The record has new shares, on disk already.
  void set_access(const reservation::ReservationT& record);
  /// What the last pass over files/ did and left.
  void set_files_report(storage::FilesAccessReport report) { files_report_ = std::move(report); }
  const storage::FilesAccessReport& files_report() const noexcept { return files_report_; }
  /// With what that says, for its owner: names of files are nobody else's to know.
  ReservationInfo owners_info() const;
  /// It has another lifetime or capacity for files, on disk already.
  void set_grant(const reservation::ReservationT& record);

  Stream* find_stream(const std::string& name);
  /// Makes an empty stream on disk if there is none.
  Result<Stream*> find_or_make_stream(const std::string& name);
  /// Opens the streams that lie on disk. Called once at start. `unchecked`: as unchecked_streams() said of this
  /// reservation before, earlier in this boot.
  void recover_streams(bool after_boot, const std::set<std::string>& unchecked);
  std::map<std::string, std::unique_ptr<Stream>>& streams() noexcept { return streams_; }
  Result<void> remove_stream(const std::string& name);
  /// Why a stream that lies on disk could not be opened; null for others. Nothing is written in the reservation while
  /// there is one: which space it holds is not known.
  const std::string* unreadable(const std::string& name) const;
  /// corrupt, with the reason, if it is one of these.
  Result<void> check_readable(const std::string& stream) const;
  const std::map<std::string, std::string>& unreadable_streams() const noexcept {
    return space_.segments().unreadable_streams;
  }
  /// Unreadable streams of which it is not known what the loss of power has left of them: they are to be recovered as
  /// after a boot whenever they can be read. `all_streams` if not even their names could be read.
  const std::set<std::string>& unchecked_streams() const noexcept { return unchecked_; }
  static constexpr const char* all_streams = "*";

  /// True once the reservation is being destroyed.
  bool retiring() const noexcept { return space_.segments().retiring; }
  /// But for what lies in files/, which takes a walk.
  ReservationInfo info() const;

  /// Ends the process if an invariant of it, its space or its streams is broken; how many things were looked at.
  std::size_t check() const;

 private:
  void member_went(std::uint16_t member);
  void member_came(std::uint16_t member);
  void member_given_up(std::uint16_t member);
  /// uuids of those whose writer groups live, or may come back.
  std::vector<std::string> writing_streams() const;
  void read_streams(bool after_boot, const std::set<std::string>& unchecked);

  ReservationHost& host_;
  const StreamServices& services_;
  reservation::ReservationT record_;  ///< constant but for its shares, lifetime and files_bytes
  ReservationSpace space_;
  std::unique_ptr<HomeMembers> others_;  ///< where it is the home of a reservation over several servers
  std::unique_ptr<MemberShare> share_;   ///< where it is not the home
  OldCopies old_copies_;
  std::map<std::string, std::unique_ptr<Stream>> streams_;
  std::set<std::string> unchecked_;
  storage::FilesAccessReport files_report_;
};

}  // namespace forebay::server
