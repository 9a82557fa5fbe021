// SPDX-License-Identifier: Apache-2.0
// How a process learns its rank: from Forebay's own variables first, then from those of the launchers.
#include <charconv>
#include <cstdlib>
#include <limits>

#include <forebay/writer.h>

#include "base/return_error.h"

namespace forebay {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Result<std::uint32_t> number_in(const char* name) {
  const std::string text = environment(name);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::invalid_argument,
                std::string("not a number: ") + name + "=\"" + text + "\"; set FOREBAY_RANK and FOREBAY_RANKS");
  }
  return number;
}

Result<LauncherRank> from_variables(const char* rank_name, const char* ranks_name) {
  ASSIGN_OR_RETURN(auto rank, number_in(rank_name));
  ASSIGN_OR_RETURN(auto ranks, number_in(ranks_name));
  if (rank >= ranks) {
    return fail(ErrorCode::invalid_argument, std::string(rank_name) + "=" + std::to_string(rank) + " is not below " +
                                                 ranks_name + "=" + std::to_string(ranks) +
                                                 "; set FOREBAY_RANK and FOREBAY_RANKS");
  }
  return LauncherRank{rank, ranks, std::string(rank_name) + "/" + ranks_name, {}};
}

bool both_set(const char* first, const char* second) {
  return std::getenv(first) != nullptr && std::getenv(second) != nullptr;
}

// Only inside srun: in a batch script SLURM_NTASKS is what the job asked for, not how many of this process there are.
bool in_slurm_step() {
  return both_set("SLURM_STEP_ID", "SLURM_PROCID") &&
         (std::getenv("SLURM_STEP_NUM_TASKS") != nullptr || std::getenv("SLURM_NTASKS") != nullptr);
}

// The same for all ranks of one start of a program, another one for the next start: also for that of a requeued job,
// which keeps its number. Ranks that mpirun starts see a Slurm step on some nodes only, so theirs is left out.
std::string group_of_launcher(const std::string& rank_source) {
  if (auto group = environment("FOREBAY_GROUP"); !group.empty()) return group;
  std::string group;
  const bool from_mpi = rank_source.starts_with("PMI_") || rank_source.starts_with("OMPI_");
  if (from_mpi) {
    for (const char* name : {"PMIX_NAMESPACE", "PMI_JOBID", "OMPI_MCA_ess_base_jobid", "PMI_KVSNAME"}) {
      if (group.empty()) group = environment(name);
    }
  }
  if (auto job = environment("SLURM_JOB_ID"); !job.empty()) {
    auto step = environment("SLURM_STEP_ID");
    auto restart = environment("SLURM_RESTART_COUNT");
    if (!group.empty()) group += ".";
    group += "slurm-" + job;
    if (!from_mpi) group += "." + (step.empty() ? "batch" : step);
    group += "." + (restart.empty() ? "0" : restart);
  }
  return group;
}

Result<LauncherRank> rank_and_ranks() {
  const bool rank_set = std::getenv("FOREBAY_RANK") != nullptr;
  const bool ranks_set = std::getenv("FOREBAY_RANKS") != nullptr;
  if (rank_set != ranks_set) {
    return fail(ErrorCode::invalid_argument, std::string("FOREBAY_RANK and FOREBAY_RANKS go together, but only ") +
                                                 (rank_set ? "FOREBAY_RANK" : "FOREBAY_RANKS") + " is set");
  }
  if (rank_set) return from_variables("FOREBAY_RANK", "FOREBAY_RANKS");
  if (both_set("PMI_RANK", "PMI_SIZE")) return from_variables("PMI_RANK", "PMI_SIZE");
  if (both_set("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
    return from_variables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (in_slurm_step())
    return from_variables("SLURM_PROCID",
                          std::getenv("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  return LauncherRank{};
}

}  // namespace

Result<LauncherRank> launcher_rank() {
  auto found = rank_and_ranks();
  if (found) found->group = group_of_launcher(found->source);
  return found;
}

std::string launcher_group() {
  const auto found = rank_and_ranks();
  return group_of_launcher(found ? found->source : std::string());
}

}  // namespace forebay
