// Tests when MPI begins and ends in a process, and that no call outlasts its deadline, under mpirun
// and with pmpi_counter.cpp loaded. Only the output of the ranks counts, since mpirun rightly
// complains about ranks that fail and do not finalise MPI.
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>
#include <stdlib.h>

namespace hvd::test {
namespace {

constexpr const char* kOptions = HVD_TEST_MPIRUN_FLAGS;
/// With these flags mpirun does not end the others when a rank dies.
constexpr const char* kKeepOthers = HVD_TEST_MPIRUN_FLAGS " " HVD_TEST_MPIRUN_KEEPS_OTHERS;

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

  /// Returns the output of `ranks` in this scenario. `options` are mpirun's.
  std::string run(const std::string& scenario, const std::string& options = kOptions,
                  int ranks = 2) {
    const std::string command =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 40 " HVD_TEST_MPIRUN
        " " +
        options + " -np " + std::to_string(ranks) + " env HVD_TEST_PMPI_JSON=" + json().string() +
        " LD_PRELOAD=" HVD_TEST_PMPI_COUNTER " " HVD_TEST_MPI_CHILD " " + scenario + " 2>&1";
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::string output;
    std::array<char, 4096> block{};
    while (std::fgets(block.data(), block.size(), pipe.get()) != nullptr) output += block.data();
    return output;
  }

  [[nodiscard]] std::filesystem::path json() const { return folder_ / "counts"; }

  /// Returns how often the shim saw MPI_Finalize on this rank; empty when the rank wrote nothing.
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
  EXPECT_TRUE(has(output, "[0] MPI may write to memory that stays")) << output;
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

TEST_F(MpiLifeTest, AnMpiThatOffersTooFewThreadsIsRefusedEachTime) {
  const std::string output = run("too-few-threads");
  EXPECT_TRUE(has(output, "[0] unsupported: ")) << output;
  EXPECT_TRUE(has(output, "[0] again unsupported: ")) << output;
  EXPECT_TRUE(has(output, "MPI_THREAD_FUNNELED")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AnMpiOfTheProgramIsTheProgramsToFinalise) {
  const std::string output = run("program-multiple");
  EXPECT_TRUE(has(output, "[0] ok")) << output;
  EXPECT_TRUE(has(output, "after unsupported: ")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AMessageThatDoesNotComeIsATimeoutThatNamesItsSender) {
  const std::string output = run("message-timeout");
  EXPECT_TRUE(has(output, "[0] timeout of rank 1: ")) << output;
  EXPECT_TRUE(has(output, "[0] again timeout of rank 1: ")) << "the first error sticks: " << output;
  EXPECT_TRUE(has(output, "[0] new unsupported: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AMessageThatNobodyTakesIsATimeoutThatNamesItsReceiver) {
  const std::string output = run("message-large-timeout");
  EXPECT_TRUE(has(output, "[0] timeout of rank 1: ")) << output;
  EXPECT_TRUE(has(output, "[0] new unsupported: ")) << output;
}

TEST_F(MpiLifeTest, AMessageThatMpiCannotSendIsAnErrorThatNamesItsReceiver) {
  const std::string output = run("message-unsent", kOptions, 3);
  EXPECT_TRUE(has(output, "[0] peer lost of rank 1: ")) << output;
}

TEST_F(MpiLifeTest, AnErrorOfAMessageEndsCollectivesToo) {
  const std::string output = run("message-timeout-among-collectives");
  EXPECT_TRUE(has(output, "[0] timeout of rank 1: ")) << output;
  EXPECT_TRUE(has(output, "[0] whole timeout of rank 1: ")) << output;
  EXPECT_TRUE(has(output, "[0] subset timeout of rank 1: ")) << output;
}

TEST_F(MpiLifeTest, AbortEndsAWaitForAMessage) {
  const std::string output = run("message-abort");
  EXPECT_TRUE(has(output, "[0] aborted: ")) << output;
  EXPECT_TRUE(has(output, "[0] again aborted: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AnAbortedTransportTakesNoMessages) {
  const std::string output = run("message-abort-before");
  EXPECT_TRUE(has(output, "[0] aborted: ")) << output;
  EXPECT_TRUE(has(output, "[0] again aborted: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, ASinkThatThrowsEndsTheTransport) {
  const std::string output = run("message-interrupted");
  EXPECT_TRUE(has(output, "[0] resource: ")) << output;
  EXPECT_NE(finalizations(0), "1") << "segments are still under way: " << output;
}

/// Tests hvd::init(MPI_Comm) when the program's MPI lacks the thread level that HVD_BACKEND=mpi
/// needs.
class MpiLevelTest : public MpiLifeTest, public testing::WithParamInterface<const char*> {};

TEST_P(MpiLevelTest, TrainsOnTheNativeTransportAndSaysSoOnce) {
  const std::string output = run(std::string("comm-") + GetParam());
  EXPECT_TRUE(has(output, "[0] sum 2") && has(output, "[1] sum 2")) << output;
  EXPECT_TRUE(has(output, "[0] own 2") && has(output, "[1] own 2")) << output;
  EXPECT_TRUE(has(output, "after unsupported: ")) << output;
  const std::string warning = "using the native transport";
  const std::size_t first = output.find(warning);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find(warning, first + 1), std::string::npos) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
}

INSTANTIATE_TEST_SUITE_P(Levels, MpiLevelTest, testing::Values("single", "funneled", "serialized"),
                         [](const auto& level) { return std::string(level.param); });

TEST_F(MpiLifeTest, WithAllThreadsAllowedACommunicatorTrainsOverMpi) {
  const std::string output = run("comm-multiple");
  EXPECT_TRUE(has(output, "[0] sum 2") && has(output, "[0] own 2")) << output;
  EXPECT_FALSE(has(output, "native transport")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, ThePlanSaysWhatWasMeasuredAndChosen) {
  const std::string output = run("comm-plan");
  EXPECT_TRUE(has(output, "allreduce 256 B: collective ")) << output;
  const std::string plan = "plan for mpi/2/streams=0: mpi/allgather=";
  const std::size_t first = output.find(plan);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find(plan, first + 1), std::string::npos) << "rank 0 only: " << output;
}

TEST_F(MpiLifeTest, ACommunicatorInAThreadThatMayNotCallMpiIsRefused) {
  const std::string output = run("comm-thread");
  EXPECT_TRUE(has(output, "[0] unsupported: ") && has(output, "[1] unsupported: ")) << output;
  EXPECT_TRUE(has(output, "MPI_THREAD_FUNNELED")) << output;
}

TEST_F(MpiLifeTest, ACommunicatorMayBeTheFirstThatNeedsMpi) {
  const std::string output = run("comm-twice");
  EXPECT_TRUE(has(output, "[0] ok") && has(output, "[1] ok")) << output;
  EXPECT_FALSE(has(output, "may not call MPI")) << output;
  EXPECT_EQ(finalizations(0), "1") << output;
  EXPECT_EQ(finalizations(1), "1") << output;
}

TEST_F(MpiLifeTest, ARankThatDoesNotComeToInitIsATimeout) {
  const std::string output = run("comm-incomplete", kKeepOthers);
  EXPECT_TRUE(has(output, "[0] timeout: ")) << output;
}

TEST_F(MpiLifeTest, AKilledRankIsNamed) {
  const std::string output = run("peer-killed", kKeepOthers);
  EXPECT_TRUE(has(output, "[0] peer lost of rank 1: ")) << output;
  EXPECT_NE(finalizations(0), "1") << output;
}

TEST_F(MpiLifeTest, AFrozenRankIsNamed) {
  const std::string output = run("peer-stopped", kKeepOthers);
  EXPECT_TRUE(has(output, "[0] peer lost of rank 1: ")) << output;
}

/// Parameters: the point at which pairs of ranks are struck, each in an operation of its own, and
/// the signal.
class MpiDeathTest : public MpiLifeTest,
                     public testing::WithParamInterface<std::tuple<const char*, const char*>> {};

TEST_P(MpiDeathTest, IsATypedErrorInTimeAndTheSurvivorEnds) {
  // MPICH's mpirun fails an assertion of its own and ends the survivors.
  if (!HVD_TEST_MPIRUN_OUTLIVES_DEATHS) GTEST_SKIP() << "needs an mpirun that outlives deaths";
  const auto [point, fate] = GetParam();
  const int pairs = std::string(point) == "messages" ? 3 : 6;
  const auto began = std::chrono::steady_clock::now();
  const std::string output = run(std::string(point) + "-" + fate, kKeepOthers, 2 * pairs);
  // mpirun waits for every rank.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(35)) << output;
  for (int pair = 0; pair < pairs; ++pair) {
    const std::string survivor = "[" + std::to_string(2 * pair) + "] ";
    const std::size_t at = output.find(survivor);
    ASSERT_NE(at, std::string::npos) << survivor << output;
    const std::string line = output.substr(at, output.find('\n', at) - at);
    EXPECT_TRUE(has(line, " in time: timeout") || has(line, " in time: peer lost")) << line;
    EXPECT_NE(finalizations(2 * pair), "1") << line;
  }
  EXPECT_FALSE(has(output, "lives on")) << output;
}

INSTANTIATE_TEST_SUITE_P(Points, MpiDeathTest,
                         testing::Combine(testing::Values("arriving", "waiting", "messages",
                                                          "carrying"),
                                          testing::Values("killed", "stopped")),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" +
                                  std::get<1>(one.param);
                         });

}  // namespace
}  // namespace hvd::test
