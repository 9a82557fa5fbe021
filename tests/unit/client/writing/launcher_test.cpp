// SPDX-License-Identifier: Apache-2.0
// Where rank and size come from, with the launchers' variables as they really are set.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <forebay/writer.h>

namespace forebay {
namespace {

class LauncherRankTest : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static void clear() {
    for (const char* name :
         {"FOREBAY_RANK", "FOREBAY_RANKS", "FOREBAY_GROUP", "PMI_RANK", "PMI_SIZE", "PMI_JOBID", "PMI_KVSNAME",
          "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid", "SLURM_PROCID",
          "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"}) {
      ::unsetenv(name);
    }
  }
  static void set(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  }
};

TEST_F(LauncherRankTest, alone_without_a_launcher) {
  const auto found = launcher_rank();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0U);
  EXPECT_EQ(found->ranks, 1U);
  EXPECT_EQ(found->source, "default");
  EXPECT_EQ(found->group, "");
}

TEST_F(LauncherRankTest, own_variables_go_first) {
  set({{"FOREBAY_RANK", "2"},
       {"FOREBAY_RANKS", "4"},
       {"FOREBAY_GROUP", "g"},
       {"PMI_RANK", "7"},
       {"PMI_SIZE", "8"},
       {"SLURM_JOB_ID", "5"}});
  const auto found = launcher_rank();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2U);
  EXPECT_EQ(found->ranks, 4U);
  EXPECT_EQ(found->source, "FOREBAY_RANK/FOREBAY_RANKS");
  EXPECT_EQ(found->group, "g");
}

TEST_F(LauncherRankTest, launchers_of_mpi) {
  set({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(launcher_rank()->ranks, 3U);
  clear();
  set({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}, {"PMIX_NAMESPACE", "prterun-1"}});
  EXPECT_EQ(launcher_rank()->rank, 5U);
  EXPECT_EQ(launcher_rank()->group, "prterun-1");
}

TEST_F(LauncherRankTest, batch_script_is_one_process_whatever_the_job_asked_for) {
  set({{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}});
  EXPECT_EQ(launcher_rank()->ranks, 1U);
  set({{"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "9"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_RESTART_COUNT", "1"}});
  const auto found = launcher_rank();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 9U);
  EXPECT_EQ(found->ranks, 16U);
  EXPECT_EQ(found->group, "slurm-77.3.1");
}

TEST_F(LauncherRankTest, group_of_mpirun_inside_slurm_is_the_same_on_all_nodes) {
  set({{"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"PMIX_NAMESPACE", "prterun-1"},
       {"SLURM_JOB_ID", "77"}});
  const std::string first = launcher_rank()->group;
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(launcher_rank()->group, first);
  set({{"SLURM_RESTART_COUNT", "1"}});
  EXPECT_NE(launcher_rank()->group, first);
}

TEST_F(LauncherRankTest, nonsense_is_told_by_name) {
  set({{"FOREBAY_RANK", "1"}});
  EXPECT_NE(launcher_rank().error().message().find("FOREBAY_RANKS go together"), std::string::npos);
  set({{"FOREBAY_RANKS", "1"}});
  EXPECT_NE(launcher_rank().error().message().find("FOREBAY_RANK=1 is not below FOREBAY_RANKS=1"), std::string::npos);
  set({{"FOREBAY_RANKS", "many"}});
  EXPECT_NE(launcher_rank().error().message().find("\"many\""), std::string::npos);
}

}  // namespace
}  // namespace forebay
