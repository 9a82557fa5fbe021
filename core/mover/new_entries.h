// SPDX-License-Identifier: Apache-2.0
// Builds entries in the mover's own folder: files, links and whole trees, copied by several threads, synced in batches
// and read back. When finish() returns they only lack their names.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <forebay/result.h>

#include "mover/own_folder.h"
#include "mover/placing.h"
#include "mover/source_file.h"
#include "mover/two_trees.h"
#include "mover/work.h"

namespace forebay::mover {

class NewEntries {
 public:
  /// `target_top`: the directory below which hard links may find what has its name already; -1: none.
  NewEntries(Work& work, const OwnFolder& folder, int target_top);
  ~NewEntries();

  /// Builds the entry `name` of `pair->source` as `built` in the folder. `shown`: its path below the target. Returns
  /// before it is done.
  Result<EntryKind> add(std::shared_ptr<DirectoryPair> pair, const std::string& name, const std::string& built,
                        const std::string& shown);
  /// Waits until all is copied, synced and compared.
  Result<void> finish();

  /// A directory without its owner's right to write can be moved to another parent by root alone: it gets its mode when
  /// it has its name.
  struct LateMode {
    Descriptor directory;
    Status status;
  };
  std::map<std::string, LateMode>& late_modes() noexcept { return late_modes_; }

 private:
  struct Made {
    std::string built;
    std::string shown;
    FileRow row;
    FileIdentity target;
    bool verified = false;
    Descriptor descriptor;  ///< open until it is synced, if each file is synced for itself
  };
  struct MadeDirectory {
    std::string built;
    std::string shown;
    Status status;
  };
  struct LaterLink {
    FileIdentity source;
    std::string source_path;  ///< below the source of the first level of its tree
    std::shared_ptr<DirectoryPair> top;
    std::string built;
    std::string shown;
  };
  struct LargeFile;

  Result<void> build_tree(std::shared_ptr<DirectoryPair> pair, const std::string& name, const std::string& built,
                          const std::string& shown);
  Result<void> build_child(TwoTrees& walk, const std::string& name, const std::string& built, const std::string& shown,
                           const std::shared_ptr<DirectoryPair>& top);
  Result<void> enter_directory(TwoTrees& walk, const std::shared_ptr<DirectoryPair>& pair, const std::string& name,
                               const std::string& target_name, const std::string& path, const std::string& built,
                               const std::string& shown, bool is_top);
  void submit_file(std::shared_ptr<DirectoryPair> pair, std::string name, std::string target_name, std::string built,
                   std::string shown);
  Result<void> copy_file(DirectoryPair& pair, const std::string& name, const std::string& target_name,
                         const std::string& built, const std::string& shown);
  /// Puts a further name of a file that has a name here already on the list of links; false if it is the first.
  bool is_later_link(const struct stat& status, const std::string& source_path,
                     const std::shared_ptr<DirectoryPair>& top, const std::string& built, const std::string& shown);
  Result<bool> take_over(SourceFile& source, int directory, const std::string& target_name, const std::string& built,
                         const std::string& shown);
  Result<void> copy_large(SourceFile source, Descriptor target, const std::string& built, const std::string& shown);
  Result<void> copy_large_range(LargeFile& file, std::size_t number);
  Result<void> finish_large(LargeFile& file);
  Result<void> copy_link(int source_directory, const std::string& name, int target_directory,
                         const std::string& target_name, const std::string& shown);
  Result<Made> complete(const SourceFile& source, Descriptor target, std::uint32_t checksum, const std::string& built,
                        const std::string& shown);
  void made(Made made, FileIdentity source, bool has_links, bool kept);

  Result<void> settle(bool last);
  Result<void> make_links();
  Result<void> make_link(const LaterLink& link, const FirstName& first);
  Result<void> sync_batch(bool last);
  Result<void> verify_batch();
  Result<void> verify(Made& made);
  Result<void> set_directories(bool open_ones);
  Result<void> set_directory(const MadeDirectory& directory);
  Result<void> set_kept(int descriptor, const Status& status, const std::string& shown);

  Work& work_;
  const OwnFolder& folder_;
  const int target_top_;
  const bool syncs_whole_;
  const std::size_t batch_max_;
  const ListLimit limit_;
  std::map<std::string, LateMode> late_modes_;
  std::vector<MadeDirectory> directories_;  // finished, deepest first, without their modes and times yet
  bool directories_set_ = false;            // since the last sync
  bool finished_ = false;

  std::mutex mutex_;  // guards those below
  std::vector<Made> batch_;
  std::size_t descriptors_kept_ = 0;
  std::vector<LaterLink> later_links_;
  std::vector<FileRow> link_rows_;
};

}  // namespace forebay::mover
