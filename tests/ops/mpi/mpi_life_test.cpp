// When MPI begins and ends in a process, and that no call outlasts its deadline: under mpirun, with
// the counting shim loaded. Only the rank's own words are believed: mpirun complains, rightly,
// about ranks that failed and left MPI without finalising.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace hvd::test {
namespace {

class MpiLifeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(HVD_TEST_MPIRUN)) GTEST_SKIP() << "needs mpirun";
    std::string pattern = (std::filesystem::temp_directory_path() / "hvd-mpi-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~MpiLifeTest() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  /// What two ranks print in this scenario.
  std::string run(const std::string& scenario) {
    const std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 40 " HVD_TEST_MPIRUN
        " --oversubscribe -np 2 env HVD_TEST_PMPI_JSON=" +
        json().string() + " LD_PRELOAD=" HVD_TEST_PMPI_COUNTER " " HVD_TEST_MPI_CHILD " " +
        scenario + " 2>&1";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string output;
    std::array<char, 4096> block{};
    while (std::fgets(block.data(), block.size(), pipe.get()) != nullptr) output += block.data();
    return output;
  }

  [[nodiscard]] std::filesystem::path json() const { return folder_ / "counts"; }

  /// How often the shim saw MPI_Finalize on this rank; empty when the rank wrote nothing.
  [[nodiscard]] std::string finalizations(int rank) const {
    std::ifstream file(json().string() + "." + std::to_string(rank));
    std::stringstream text;
    text << file.rdbuf();
    const std::string key = "\"finalizations\": ";
    const std::size_t at = text.str().find(key);
    return at == std::string::npos ? "" : text.str().substr(at + key.size(), 1);
  }

  std::filesystem::path folder_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(MpiLifeTest, StaysThroughShutdownAndInitAndEndsWithTheProcess) {
  const std::string output = run("twice");
  EXPECT_TRUE(has(output, "[0] ok\n[0] ok") || has(output, "[1] ok")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
  EXPECT_EQ(finalizations(1), "1") << output;
}

TEST_F(MpiLifeTest, EndsWithABackendThatOutlivesTheExitHandlers) {
  const std::string output = run("keep");
  EXPECT_TRUE(has(output, "[0] ok")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
  EXPECT_EQ(finalizations(1), "1") << output;
}

TEST_F(MpiLifeTest, ADeadlineIsATimeoutAndMpiIsNotUsedAgain) {
  const std::string output = run("timeout");
  EXPECT_TRUE(has(output, "[0] timeout: ")) << output;
  EXPECT_TRUE(has(output, "[0] again timeout: ")) << output;
  EXPECT_TRUE(has(output, "[0] new unsupported: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, ASubsetWhoseMembersDoNotComeIsATimeout) {
  const std::string output = run("subset");
  EXPECT_TRUE(has(output, "[0] timeout: ")) << output;
  EXPECT_TRUE(has(output, "[0] whole timeout: ")) << output;
}

TEST_F(MpiLifeTest, AbortEndsAWait) {
  const std::string output = run("abort");
  EXPECT_TRUE(has(output, "[0] aborted: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AProgramThatInitialisesMpiMustAllowThreads) {
  const std::string output = run("program-funneled");
  EXPECT_TRUE(has(output, "[0] unsupported: ")) << output;
  EXPECT_TRUE(has(output, "MPI_THREAD_FUNNELED")) << output;
}

TEST_F(MpiLifeTest, AnMpiOfTheProgramIsTheProgramsToFinalise) {
  const std::string output = run("program-multiple");
  EXPECT_TRUE(has(output, "[0] ok")) << output;
  EXPECT_TRUE(has(output, "after unsupported: ")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
}

}  // namespace
}  // namespace hvd::test
