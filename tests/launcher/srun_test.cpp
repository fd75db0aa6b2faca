// Starts programs of the library with srun, without setting any variable.
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/this_host.hpp"
#include "slurm_cluster.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// The first node has this machine's name, since the others connect to rank 0 by that name.
class SrunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (SlurmCluster::lacks().empty()) cluster_.emplace(own_host_name(), "zzz-second");
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (!cluster_) GTEST_SKIP() << "needs " << SlurmCluster::lacks();
    std::ofstream(secret_) << std::string(32, 's');
    fs::permissions(secret_, fs::perms::owner_read | fs::perms::owner_write);
  }

  static test::ProcessOptions command(std::vector<std::string> arguments) {
    auto options = cluster_->command(std::move(arguments));
    options.environment["HVD_SECRET_FILE"] = std::nullopt;
    options.environment["HVD_START_TIMEOUT"] = "20";
    return options;
  }
  /// Starts two ranks on one node, or one rank on each of two.
  static test::ProcessOptions srun(const std::string& mpi, int nodes) {
    return command(
        {"srun", "--quiet", "--mpi=" + mpi, fmt::format("--nodes={}", nodes), "--ntasks=2", TRAIN});
  }
  static bool has_plugin(const std::string& name) {
    const auto list = run(command({"srun", "--mpi=list"}));
    return (list.out + list.err).find(name) != std::string::npos;
  }

  Directory directory_;
  fs::path secret_ = directory_.path() / "secret";

 private:
  static inline std::optional<SlurmCluster> cluster_;
};

void expect_a_job_of_two(const test::ProcessResult& result) {
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 of 2 on "), HasSubstr("rank 1 of 2 on "),
                                HasSubstr(" sum 1 ready\n")));
}

TEST_F(SrunTest, OneNodeNeedsNothing) {
  expect_a_job_of_two(run(srun("none", 1)));
  expect_a_job_of_two(run(srun("pmi2", 1)));
}

TEST_F(SrunTest, TwoNodesWithASecretFindTheFirst) {
  for (const char* mpi : {"none", "pmi2"}) {
    auto options = srun(mpi, 2);
    options.environment["HVD_SECRET_FILE"] = secret_.string();
    expect_a_job_of_two(run(std::move(options)));
  }
}

TEST_F(SrunTest, TwoNodesWithoutASecretAreToldAboutIt) {
  const auto result = run(srun("none", 2));
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_THAT(result.err, HasSubstr("HVD_SECRET_FILE"));
}

TEST_F(SrunTest, TwoStepsAtOnceDoNotMix) {
  auto options =
      command({"salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", "sh", "-c",
               "srun --quiet --overlap --mpi=none --ntasks=2 --nodes=2 " TRAIN
               " & srun --quiet --overlap --mpi=none --ntasks=4 --nodes=2 " TRAIN "; wait"});
  options.environment["HVD_SECRET_FILE"] = secret_.string();
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 1 of 2 on "), HasSubstr(" sum 1 ready\n"),
                                HasSubstr("rank 3 of 4 on "), HasSubstr(" sum 6 ready\n")));
}

TEST_F(SrunTest, PmixGivesPlaceAddressAndSecret) {
  if (!HAS_PMIX) GTEST_SKIP() << "needs PMIx";
  if (!has_plugin("pmix")) GTEST_SKIP() << "needs Slurm's PMIx plugin";
  for (int nodes : {1, 2}) expect_a_job_of_two(run(srun("pmix", nodes)));
}

TEST_F(SrunTest, ABatchScriptAndAShellAreOneProcessEach) {
  const auto result = run(command({"salloc", "--quiet", "--ntasks=2", TRAIN}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 of 1 on "));
  directory_.make_fifo("out");
  const std::string output = directory_.path() / "out";
  const auto batch =
      run(command({"sbatch", "--quiet", "--ntasks=2", "--wrap=" TRAIN " >" + output}));
  EXPECT_EQ(batch.exit_code(), 0) << batch.err;
  EXPECT_THAT(run(command({"cat", output})).out, HasSubstr("rank 0 of 1 on "));
  // When a new job gets both nodes exclusively, the daemon of the earlier one has ended.
  const auto next =
      run(command({"srun", "--quiet", "--nodes=2", "--exclusive", "--mpi=none", "true"}));
  EXPECT_EQ(next.exit_code(), 0) << next.err;
}

}  // namespace
}  // namespace hvd::launcher
