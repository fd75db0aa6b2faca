#include "mpirun_output.hpp"

#include <algorithm>
#include <csignal>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exit_codes.hpp"
#include "mpirun_command.hpp"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// What came of the streams, as "rank stream text" per rank and stream.
std::string gathered(MpirunOutput& output, Stream stream, std::string_view bytes,
                     std::size_t piece) {
  std::map<std::pair<int, Stream>, std::string> texts;
  const auto take = [&](const std::vector<Output>& pieces) {
    for (const Output& one : pieces) {
      texts[{one.rank, one.stream}] +=
          std::string(reinterpret_cast<const char*>(one.bytes.data()), one.bytes.size());
    }
  };
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    take(output.feed(stream, bytes.substr(at, piece)));
  }
  take(output.finish());
  std::string all;
  for (const auto& [key, text] : texts) {
    all += std::to_string(key.first) + (key.second == Stream::out ? "o{" : "e{") + text + "}";
  }
  return all;
}

TEST(MpirunOutputTest, TagsAreTakenOffWhereverThePiecesEnd) {
  const std::string text =
      "[1,0]<stdout>:a\rb\n[1,0]<stdout>:part[1,1]<stdout>:x[y\n[1,0]<stdout>: rest\n"
      "a message\n[1,1]<stderr>:e\n[1,0]<stdout>:[not a tag\n[1,1]<stdout>:end[1,";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    MpirunOutput output(2, OpenMpi::orte);
    EXPECT_EQ(gathered(output, Stream::out, text, piece),
              "0o{a\rb\npart rest\n[not a tag\n}1o{x[y\nend[1,}1e{e\n}")
        << piece;
  }
}

TEST(MpirunOutputTest, FromOpenMpi5OnABlankIsPartOfTheTag) {
  const std::string text =
      "[1,0]<stdout>:  two blanks\n[1,1]<stdout>: \n[1,0]<stdout>: a[1,1]<stdout>: b";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    MpirunOutput output(2, OpenMpi::prrte);
    EXPECT_EQ(gathered(output, Stream::out, text, piece), "0o{ two blanks\na}1o{\nb}") << piece;
  }
}

TEST(MpirunOutputTest, ATagOfNoRankIsText) {
  MpirunOutput output(2, OpenMpi::orte);
  EXPECT_EQ(gathered(output, Stream::out, "[1,1]<stdout>:[1,2]<stdout>:x\n", 7),
            "1o{[1,2]<stdout>:x\n}");
}

Outcome failed(int status) {
  Outcome outcome;
  outcome.culprit = RankEnd{.rank = 0, .status = status};
  outcome.code = exit_code(status);
  return outcome;
}

MpirunOutput::Explanation explained(const std::string& messages, int status,
                                    OpenMpi kind = OpenMpi::orte) {
  MpirunOutput output(4, kind);
  (void)output.feed(Stream::err, messages);
  return output.explain(failed(status));
}

TEST(MpirunOutputTest, TheRankThatMpirunNamesIsToBlame) {
  const auto exited = explained(
      "-----\nmpirun detected that one or more processes exited with non-zero status, thus "
      "causing\n"
      "the job to be terminated. The first process to do so was:\n\n"
      "  Process name: [[5088,1],2]\n  Exit code:    7\n-----\n",
      7 << 8);
  ASSERT_TRUE(exited.outcome.culprit);
  EXPECT_EQ(exited.outcome.culprit->rank, 2);
  EXPECT_EQ(exited.outcome.code, 7);
  const auto killed = explained(
      "mpirun noticed that process rank 3 with PID 123 on node vm exited on signal 9 (Killed).\n",
      137 << 8);
  ASSERT_TRUE(killed.outcome.culprit);
  EXPECT_EQ(killed.outcome.culprit->rank, 3);
  EXPECT_EQ(killed.outcome.culprit->status, SIGKILL);
  EXPECT_EQ(killed.outcome.code, 137);
  EXPECT_EQ(killed.pid, 123);
}

TEST(MpirunOutputTest, NumbersThatNoMpirunWritesNameNobody) {
  const std::string many(30, '9');
  for (const std::string& message :
       {"  Process name: [[5088,1]," + many + "]\n  Exit code:    7\n",
        "  Process name: [[5088,1],1]\n  Exit code:    " + many + "\n",
        "process rank 1 with PID " + many + " on node vm exited on signal 9 (Killed).\n"}) {
    const auto result = explained(message, 7 << 8);
    EXPECT_FALSE(result.outcome.culprit) << message;
    EXPECT_EQ(result.outcome.code, 7);
  }
}

TEST(MpirunOutputTest, OpenMpi5NamesThemOtherwise) {
  const auto exited = explained(
      "prterun detected that one or more processes exited with non-zero status,\n"
      "thus causing the job to be terminated. The first process to do so was:\n\n"
      "   Process name: [prterun-vm-5605@1,1]\n   Exit code:    7\n-----\n",
      7 << 8, OpenMpi::prrte);
  ASSERT_TRUE(exited.outcome.culprit);
  EXPECT_EQ(exited.outcome.culprit->rank, 1);
  EXPECT_EQ(exited.outcome.code, 7);
  const auto killed = explained(
      "prterun noticed that process rank 1 with PID 5621 on node vm exited on\n"
      "signal 9 (Killed).\n",
      137 << 8, OpenMpi::prrte);
  ASSERT_TRUE(killed.outcome.culprit);
  EXPECT_EQ(killed.outcome.culprit->rank, 1);
  EXPECT_EQ(killed.outcome.culprit->status, SIGKILL);
  EXPECT_EQ(killed.pid, 5621);
  EXPECT_EQ(explained("unable to launch the specified application as it could not\naccess an "
                      "executable:\n\n   Executable: ./nothing\n",
                      183 << 8, OpenMpi::prrte)
                .outcome.code,
            kExitNotFound);
  EXPECT_EQ(
      explained("A daemon failed to report back after being spawned.\n", 255 << 8, OpenMpi::prrte)
          .outcome.code,
      kExitHostUnreachable);
}

TEST(MpirunOutputTest, WhatKeptItFromStartingHasOurCodes) {
  const auto no_host = explained(
      "ssh: Could not resolve hostname b\nORTE was unable to reliably "
      "start one or more daemons.\n",
      255 << 8);
  EXPECT_FALSE(no_host.outcome.culprit);
  EXPECT_EQ(no_host.outcome.code, kExitHostUnreachable);
  EXPECT_THAT(no_host.outcome.trouble, HasSubstr("Could not resolve hostname b"));
  EXPECT_EQ(explained("... could not access\nor execute an executable:\n", 132 << 8).outcome.code,
            kExitNotFound);
  EXPECT_EQ(explained("something else\n", 5 << 8).outcome.code, 5);
}

TEST(MpirunCommandTest, NamesInArgumentsValuesInTheEnvironment) {
  Options options;
  options.program = {"./train", "-np"};
  options.exports = {{"A", "secret value"}, {"MY_KEY", std::nullopt}};
  options.ssh_port = 22;
  options.mpi_args = "--mca x y";
  options.interfaces = "eth0";
  const Plan plan = plan_ranks({{"a", 4}, {"b", 2}}, 5);
  const auto command =
      mpirun_command(options, plan, {"PATH=/bin", "MY_KEY=1", "OTHER_KEY=2", "BASH_FUNC_x%%=y"});
  std::string line;
  for (const std::string& word : command.arguments) line += word + " ";
  EXPECT_THAT(line, HasSubstr("mpirun -np 5 --host a:4,b:1 "));
  EXPECT_THAT(line, HasSubstr("--mca plm_rsh_args -p 22 "));
  EXPECT_THAT(line, HasSubstr("--mca btl_tcp_if_include eth0 "));
  EXPECT_THAT(line, HasSubstr("-x A -x MY_KEY "));
  EXPECT_THAT(line, testing::EndsWith("--mca x y ./train -np "));
  EXPECT_THAT(line, Not(HasSubstr("secret value")));
  EXPECT_THAT(line, Not(HasSubstr("OTHER_KEY")));
  EXPECT_THAT(command.variables, Contains("A=secret value"));
  EXPECT_THAT(command.variables, Contains("HVD_NETWORK_INTERFACES=eth0"));
  EXPECT_THAT(command.variables, Contains("NCCL_SOCKET_IFNAME==eth0"));
  EXPECT_THAT(mpirun_command(options, plan, {"NCCL_SOCKET_IFNAME=mine"}).variables,
              Contains("NCCL_SOCKET_IFNAME=mine"));
  options.exports.push_back({"HVD_NETWORK_INTERFACES", "ib0"});
  EXPECT_THAT(mpirun_command(options, plan, {}).variables, Contains("HVD_NETWORK_INTERFACES=ib0"));
  options.interfaces = "10.0.0.0/8";
  const auto by_block = mpirun_command(options, plan, {}).variables;
  EXPECT_TRUE(std::none_of(by_block.begin(), by_block.end(), [](const std::string& entry) {
    return entry.starts_with("NCCL_SOCKET_IFNAME=");
  }));
  EXPECT_THAT(command.variables, Not(Contains("OTHER_KEY=2")));
  EXPECT_THROW((void)mpirun_command(options, plan_ranks({{"a", 1, "me"}}, 1), {}), LaunchError);
}

}  // namespace
}  // namespace hvd::launcher
