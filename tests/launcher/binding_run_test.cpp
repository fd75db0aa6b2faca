// Tests on which CPUs hvdrun starts ranks. Jobs see each other's cores only in the same network
// namespace, so a namespace of their own keeps these jobs from those of other tests.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "directory.hpp"
#include "hvdrun.hpp"
#include "plan/binding.hpp"
#include "plan/cpus.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

const std::string kSayMask = "sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status";

class BindingRunTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HAS_HWLOC) GTEST_SKIP() << "hwloc";
    if (::geteuid() != 0) GTEST_SKIP() << "root";
    machine_ = read_cpu_topology();
    if (machine_.cores.size() < 2) GTEST_SKIP() << "two cores";
    test::ProcessOptions options;
    options.arguments = {"unshare", "--net", "sh", "-c",
                         "ip link set lo up && echo up && exec sleep 600"};
    space_.emplace(std::move(options));
    try {
      space_->wait_for_out("up\n", test::in(kPatience));
    } catch (const std::runtime_error&) {
      GTEST_SKIP() << "network namespaces";
    }
  }

  /// Runs the command of `options` in the namespace, and on these CPUs only unless they are empty.
  [[nodiscard]] test::ProcessOptions inside(test::ProcessOptions options,
                                            const Cpus& cpus = {}) const {
    std::vector<std::string> words = {"nsenter", "-t", std::to_string(space_->pid()), "-n"};
    if (!cpus.empty()) words.insert(words.end(), {"taskset", "-c", cpu_list(cpus)});
    options.arguments.insert(options.arguments.begin(), words.begin(), words.end());
    options.environment["CUDA_VISIBLE_DEVICES"] = "";  // no rank is near a GPU
    return options;
  }
  /// Runs ranks that print their masks.
  [[nodiscard]] test::ProcessResult masks(int ranks, const std::vector<std::string>& options = {},
                                          const Cpus& cpus = {}) const {
    return run(inside(hvdrun_script(ranks, kSayMask, options), cpus));
  }
  /// An elastic job whose workers print their masks and stay.
  [[nodiscard]] test::ProcessOptions elastic() const {
    return inside(hvdrun({"-np", "1", "--bind-to", "core", "--host-discovery-script",
                          "cat " + hosts().string(), "sh", "-c", kSayMask + "; exec sleep 600"}));
  }
  /// Gives its only host so many slots.
  void list(std::size_t slots) const {
    std::ofstream(hosts().string() + ".new") << "localhost:" << slots << '\n';
    std::filesystem::rename(hosts().string() + ".new", hosts());
  }
  /// Returns the output of ranks with these masks, in some order.
  static std::multiset<std::string> lines_of(const std::string& out) {
    std::multiset<std::string> lines;
    for (std::size_t begin = 0; begin < out.size();) {
      const auto end = out.find('\n', begin);
      lines.insert(out.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  }
  static std::multiset<std::string> expected(const std::vector<Cpus>& masks) {
    std::multiset<std::string> lines;
    for (std::size_t rank = 0; rank < masks.size(); ++rank) {
      lines.insert("[" + std::to_string(rank) + "]<stdout>:" + cpu_list(masks[rank]));
    }
    return lines;
  }
  [[nodiscard]] Cpus own_mask() const { return first_cores(machine_.cores.size()); }
  [[nodiscard]] Cpus first_cores(std::size_t count) const {
    Cpus cpus;
    for (std::size_t core = 0; core < count; ++core) {
      const Cpus& threads = machine_.cores[core].cpus;
      cpus.insert(cpus.end(), threads.begin(), threads.end());
    }
    std::sort(cpus.begin(), cpus.end());
    return cpus;
  }

  [[nodiscard]] std::filesystem::path hosts() const { return directory_.path() / "hosts"; }

  Directory directory_;
  CpuTopology machine_;
  std::optional<test::Process> space_;
};

TEST_F(BindingRunTest, RanksGetCoresOfTheirOwn) {
  if (machine_.bound) GTEST_SKIP() << "an affinity mask with all cores";
  const Binding plan = plan_binding({}, 2, machine_, {});
  ASSERT_EQ(plan.cpus.size(), 2U) << plan.unbound;
  const auto result = masks(2);
  EXPECT_EQ(lines_of(result.out), expected(plan.cpus)) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(lines_of(masks(2, {"--bind-to", "core"}).out), expected(plan.cpus));

  auto threads = inside(hvdrun_script(2, "echo $OMP_NUM_THREADS", {"--no-prefix"}));
  threads.environment["OMP_NUM_THREADS"] = std::nullopt;
  const int least = std::min(omp_threads(2), static_cast<int>(plan.cpus[0].size()));
  const std::string each = std::to_string(least) + "\n";
  EXPECT_EQ(run(std::move(threads)).out, each + each);
}

/// Worker 0 may run on all cores. With too many slots for the cores, newcomers beyond are not
/// bound.
TEST_F(BindingRunTest, NewWorkersOfAnElasticJobGetTheirShareOfTheSlotsThatTheirHostHasNow) {
  if (machine_.bound) GTEST_SKIP() << "an affinity mask with all cores";
  list(1);
  test::Process job(elastic());
  const auto expect = [&job](const char* worker, const Cpus& cpus) {
    job.wait_for_out(std::string(worker) + "<stdout>:" + cpu_list(cpus) + "\n",
                     test::in(kPatience));
  };
  expect("[0]", own_mask());
  list(2);
  expect("[1]", plan_binding({.to = BindTo::core}, 2, machine_, {}).cpus.at(1));
  list(machine_.cores.size() + 1);
  expect("[2]", own_mask());
}

/// Another job holds all cores, and the host gets more slots than it has cores.
TEST_F(BindingRunTest, NewWorkersOfAnElasticJobThatIsNotBoundAreNotBoundEither) {
  if (machine_.bound) GTEST_SKIP() << "an affinity mask with all cores";
  test::Process holder(
      inside(hvdrun_script(1, kSayMask + "; exec sleep 600", {"--bind-to", "core"})));
  const std::string all = "<stdout>:" + cpu_list(own_mask()) + "\n";
  holder.wait_for_out("[0]" + all, test::in(kPatience));
  list(1);
  test::Process job(elastic());
  job.wait_for_out("[0]" + all, test::in(kPatience));
  list(machine_.cores.size() + 1);
  job.wait_for_out("[1]" + all, test::in(kPatience));
}

TEST_F(BindingRunTest, TheDryRunAndVerboseShowTheCores) {
  const Cpus two = first_cores(2);
  const auto dry = run(inside(hvdrun_script(2, "true", {"--bind-to", "core", "--dry-run"}), two));
  const std::string first = cpu_list(machine_.cores[0].cpus);
  const std::string second = cpu_list(machine_.cores[1].cpus);
  EXPECT_THAT(dry.out, AllOf(HasSubstr("rank 0 on localhost, CPUs " + first + ": HVD_RANK=0"),
                             HasSubstr("rank 1 on localhost, CPUs " + second + ": HVD_RANK=1")));
  const auto none = run(inside(hvdrun_script(2, "true", {"--bind-to", "none", "--dry-run"})));
  EXPECT_THAT(none.out, HasSubstr("rank 0 on localhost: HVD_RANK=0"));
  const auto verbose = masks(2, {"--bind-to", "core", "--verbose"}, two);
  EXPECT_THAT(verbose.err, AllOf(HasSubstr(" and is bound to CPUs " + first + "\n"),
                                 HasSubstr(" and is bound to CPUs " + second + "\n")));
}

TEST_F(BindingRunTest, MoreRanksThanCoresAreNotBound) {
  const int ranks = static_cast<int>(machine_.cores.size()) + 1;
  const auto result = masks(ranks);
  const std::vector<Cpus> all(static_cast<std::size_t>(ranks), own_mask());
  EXPECT_EQ(lines_of(result.out), expected(all));
  EXPECT_EQ(result.err, "");
  const auto refused = masks(ranks, {"--bind-to", "core"});
  EXPECT_EQ(refused.exit_code(), 64);
  EXPECT_EQ(refused.err,
            "hvdrun: localhost: ranks cannot be bound to cores: " + std::to_string(ranks) +
                " cores are needed for " + std::to_string(ranks) + " ranks, and " +
                std::to_string(ranks - 1) + " may be used\n");
}

TEST_F(BindingRunTest, NoneAndAUsersMaskWin) {
  const Cpus one = {machine_.cores[0].cpus.front()};
  EXPECT_EQ(lines_of(masks(2, {"--bind-to", "none"}).out), expected({own_mask(), own_mask()}));
  EXPECT_EQ(lines_of(masks(1, {}, one).out), expected({one}));
  EXPECT_EQ(lines_of(masks(2, {}, one).out), expected({one, one}));
  // One rank may use the whole machine anyway, and several names of this host are several agents.
  EXPECT_EQ(lines_of(masks(1).out), expected({own_mask()}));
  EXPECT_EQ(lines_of(masks(2, {"-H", "localhost:1,127.0.0.1:1"}).out),
            expected({own_mask(), own_mask()}));
  // A user who asks for cores gets those of the mask.
  EXPECT_EQ(lines_of(masks(2, {"--bind-to", "core"}, first_cores(2)).out),
            expected({machine_.cores[0].cpus, machine_.cores[1].cpus}));
}

TEST_F(BindingRunTest, JobsDoNotShareCores) {
  const Directory directory;
  directory.make_fifo("first");
  directory.make_fifo("second");
  const Cpus two = first_cores(2);
  const std::vector<std::string> one_core = {"--map-by", "core:PE=1"};
  const auto waiting = [&](const std::string& gate) {
    return inside(
        hvdrun_script(1, kSayMask + "; read go <" + (directory.path() / gate).string(), one_core),
        two);
  };
  const auto open = [&](const std::string& gate) {
    std::ofstream(directory.path() / gate) << "go\n";
  };
  const std::string first = cpu_list(machine_.cores[0].cpus);
  test::Process a(waiting("first"));
  a.wait_for_out("[0]<stdout>:" + first + "\n", test::in(kPatience));
  const auto status = run(inside(hvdrun({"status"})));
  EXPECT_THAT(status.out,
              AllOf(HasSubstr("     pid bound to    cpu"),
                    testing::ContainsRegex("\n    0 localhost +[0-9]+ +" + first + " ")))
      << status.err;
  test::Process b(waiting("second"));
  b.wait_for_out("[0]<stdout>:" + cpu_list(machine_.cores[1].cpus) + "\n", test::in(kPatience));

  const auto third = masks(1, one_core, two);
  EXPECT_EQ(lines_of(third.out), expected({two}));
  EXPECT_EQ(third.err,
            "hvdrun: ranks on localhost are not bound to cores: other jobs hold 2 of 2 cores\n");
  const auto quiet = masks(2);
  EXPECT_EQ(quiet.err, "");

  open("first");
  EXPECT_EQ(a.wait(test::in(kPatience)).exit_code(), 0);
  EXPECT_EQ(lines_of(masks(1, one_core, two).out), expected({machine_.cores[0].cpus}));
  open("second");
  EXPECT_EQ(b.wait(test::in(kPatience)).exit_code(), 0);
}

/// Returns the masks of all threads of a process.
std::vector<std::string> masks_of_threads(const std::string& pid) {
  const std::string name = "Cpus_allowed_list:\t";
  std::vector<std::string> masks;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + pid + "/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name, 0) == 0) masks.push_back(line.substr(name.size()));
    }
  }
  return masks;
}

TEST_F(BindingRunTest, TheThreadsOfTheLibraryStayOnTheCoresOfTheirRank) {
  const Directory directory;
  const std::string end = directory.path() / "end";
  const std::string script = std::string("echo pid $$; exec ") + TRAIN + " until " + end;
  test::Process job(inside(hvdrun_script(2, script, {"--bind-to", "core"}), first_cores(2)));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string prefix = "[" + std::to_string(rank) + "]<stdout>:";
    job.wait_for_out(prefix + "rank " + std::to_string(rank) + " of 2", test::in(kPatience));
    const std::string words = prefix + "pid ";
    const auto begin = job.out().find(words) + words.size();
    const auto masks =
        masks_of_threads(job.out().substr(begin, job.out().find('\n', begin) - begin));
    EXPECT_GT(masks.size(), 1U) << "the library has threads of its own";
    EXPECT_THAT(masks, testing::Each(cpu_list(machine_.cores[rank].cpus)));
  }
  std::ofstream{end};
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
}

TEST_F(BindingRunTest, TheLibraryNamesRanksThatStayOnOneCpu) {
  const Cpus one = {machine_.cores[0].cpus.front()};
  const Directory directory;
  const std::string end = directory.path() / "end";
  test::Process together(inside(hvdrun({"-np", "2", TRAIN, "until", end}), one));
  together.wait_for_err("ranks 0 and 1 stay on CPU " + cpu_list(one) + ",", test::in(kPatience));
  std::ofstream{end};
  const auto result = together.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.err.substr(result.err.find("stay on") + 1), Not(HasSubstr("stay on")));
}

TEST(BindingUsageTest, WrongValuesAreNamed) {
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{
           {"--bind-to", "socket"}, {"--map-by", "slot"}, {"--map-by", "core:PE=0"}}) {
    const auto result = run(hvdrun({"-np", "1", option, value, "true"}));
    EXPECT_EQ(result.exit_code(), 64);
    EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: " + option + " '" + value + "': expected "),
                                  EndsWith("\n")));
  }
}

}  // namespace
}  // namespace hvd::launcher
