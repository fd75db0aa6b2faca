// Tests which cores the ranks of a host get, on machines that hwloc makes up.
#include "plan/binding.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/host_binding.hpp"
#include "base/exit_codes.hpp"
#include "directory.hpp"
#include "plan/devices.hpp"

namespace hvd::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Returns the CPUs of each rank as text, or why there are none.
std::vector<std::string> masks(const Binding& binding) {
  std::vector<std::string> texts;
  for (const Cpus& cpus : binding.cpus) texts.push_back(cpu_list(cpus));
  if (texts.empty()) texts.push_back(binding.unbound);
  return texts;
}

class BindingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HAS_HWLOC) GTEST_SKIP() << "hwloc";
  }

  static std::vector<std::string> plan(const CpuTopology& machine, int ranks,
                                       const BindingOptions& options = {},
                                       const std::vector<Cpus>& near = {}) {
    return masks(plan_binding(options, ranks, machine, near));
  }
  static std::string refusal(const CpuTopology& machine, int ranks, const BindingOptions& options) {
    try {
      (void)plan_binding(options, ranks, machine, {});
    } catch (const LaunchError& error) {
      EXPECT_EQ(error.code(), kExitUsage);
      return error.what();
    }
    return "";
  }
};

TEST_F(BindingTest, RanksShareTheCoresEvenlyWithAllTheirThreads) {
  const CpuTopology machine = read_cpu_topology("numa:2 core:4 pu:2");
  ASSERT_EQ(machine.cores.size(), 8U);
  EXPECT_THAT(plan(machine, 2), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(plan(machine, 4), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(plan(machine, 8),
              ElementsAre("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"));
  EXPECT_THAT(plan_binding({}, 4, machine, {}).cores, ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
}

TEST_F(BindingTest, AShareIsInOneNodeIfANodeHasRoom) {
  const CpuTopology machine = read_cpu_topology("numa:2 core:5 pu:1");
  // Rank 1 does not get cores 3 and 4 with one of the other node, and nobody else has room for
  // rank 2.
  EXPECT_THAT(plan(machine, 3), ElementsAre("0-2", "5-7", "3-4,8"));
  EXPECT_THAT(plan(machine, 4), ElementsAre("0-1", "2-3", "5-6", "7-8"));
  const BindingOptions all{.to = BindTo::core};
  EXPECT_THAT(plan(machine, 1, all), ElementsAre("0-9"));
}

TEST_F(BindingTest, MapByChoosesTheOrderAndTheNumberOfCores) {
  const CpuTopology machine = read_cpu_topology("numa:2 core:4 pu:1");
  const BindingOptions core{.by = MapBy::core, .cores = 1};
  const BindingOptions numa{.by = MapBy::numa, .cores = 1};
  EXPECT_THAT(plan(machine, 3, core), ElementsAre("0", "1", "2"));
  EXPECT_THAT(plan(machine, 3, numa), ElementsAre("0", "4", "1"));
  EXPECT_THAT(plan(machine, 1, core), ElementsAre("0"));
  EXPECT_THAT(plan(machine, 4, {.by = MapBy::numa}), ElementsAre("0-1", "4-5", "2-3", "6-7"));
}

TEST_F(BindingTest, BindToNumaGivesTheWholeNode) {
  CpuTopology machine = read_cpu_topology("numa:2 core:4 pu:1");
  const BindingOptions numa{.to = BindTo::numa};
  EXPECT_THAT(plan(machine, 4, numa), ElementsAre("0-3", "0-3", "4-7", "4-7"));
  machine.cores[1].held = true;
  EXPECT_THAT(plan(machine, 1, {.to = BindTo::numa, .cores = 2}), ElementsAre("0,2-3"));
  EXPECT_THAT(plan_binding({.to = BindTo::numa, .cores = 2}, 1, machine, {}).cores,
              ElementsAre(0, 2, 3));
}

TEST_F(BindingTest, ARankIsNearItsGpuUnlessTheUserChoosesTheOrder) {
  const CpuTopology machine = read_cpu_topology("numa:2 core:4 pu:1");
  const std::vector<Cpus> near = {{4, 5, 6, 7}, {0, 1, 2, 3}, {}, {4, 5, 6, 7}};
  EXPECT_THAT(plan(machine, 4, {}, near), ElementsAre("4-5", "0-1", "2-3", "6-7"));
  EXPECT_THAT(plan(machine, 4, {.by = MapBy::core}, near), ElementsAre("0-1", "2-3", "4-5", "6-7"));
}

TEST_F(BindingTest, CoresOfOtherJobsAreLeftAlone) {
  CpuTopology machine = read_cpu_topology("numa:1 core:4 pu:1");
  machine.cores[0].held = true;
  EXPECT_THAT(plan(machine, 3), ElementsAre("1", "2", "3"));
  EXPECT_THAT(plan(machine, 4), ElementsAre("other jobs hold 1 of 4 cores"));
  EXPECT_THAT(plan(machine, 2, {.by = MapBy::core, .cores = 2}),
              ElementsAre("other jobs hold 1 of 4 cores"));
}

TEST_F(BindingTest, AutoLeavesAloneWhatItCannotImprove) {
  CpuTopology machine = read_cpu_topology("numa:1 core:4 pu:1");
  EXPECT_THAT(plan(machine, 5), ElementsAre("5 cores are needed for 5 ranks, and 4 may be used"));
  EXPECT_THAT(plan(machine, 1), ElementsAre(HasSubstr("only rank")));
  machine.quota = 2;
  EXPECT_THAT(plan(machine, 2), ElementsAre(HasSubstr("the time of 2 CPUs")));
  EXPECT_THAT(plan(machine, 2, {.cores = 1}), ElementsAre("0", "1"));
  machine.bound = true;
  EXPECT_THAT(plan(machine, 2), ElementsAre(HasSubstr("itself is bound")));
  EXPECT_THAT(plan(machine, 2, {.to = BindTo::core}), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(plan(machine, 2, {.to = BindTo::none, .cores = 1}), ElementsAre(""));
}

TEST_F(BindingTest, WhatTheUserAsksForAndTheMachineLacksIsAnError) {
  const CpuTopology machine = read_cpu_topology("numa:1 core:4 pu:2");
  EXPECT_EQ(refusal(machine, 5, {.to = BindTo::core}),
            "ranks cannot be bound to cores: 5 cores are needed for 5 ranks, and 4 may be used");
  EXPECT_EQ(refusal(machine, 2, {.by = MapBy::core, .cores = 3}),
            "ranks cannot be bound to cores: 6 cores are needed for 2 ranks, and 4 may be used");
}

TEST_F(BindingTest, AMachineWithoutCoresHasCpus) {
  EXPECT_THAT(plan(read_cpu_topology("pu:4"), 2), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(read_cpu_topology("nonsense").unknown, HasSubstr("cannot read"));
}

TEST(UnknownTopologyTest, IsNoErrorUnlessTheUserAsksForCores) {
  const CpuTopology unknown{.unknown = "this hvdrun was built without hwloc"};
  EXPECT_EQ(plan_binding({}, 2, unknown, {}).unbound, unknown.unknown);
  EXPECT_THROW((void)plan_binding({.to = BindTo::core}, 2, unknown, {}), LaunchError);
}

TEST(CpuListTest, IsTheKernelsForm) {
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_THAT(parse_cpu_list("0-2,5,7-8\n"), testing::Optional(ElementsAre(0, 1, 2, 5, 7, 8)));
  EXPECT_THAT(parse_cpu_list(""), testing::Optional(IsEmpty()));
  for (const char* wrong : {"a", "1,", ",1", "1-", "-1", "2-1", "1,1", "1--2", "0-65536", "1 2"}) {
    EXPECT_EQ(parse_cpu_list(wrong), std::nullopt) << wrong;
  }
}

/// A folder that looks like the root of a machine with the devices that a test adds.
class FakeRoot {
 public:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_.path() / path).parent_path());
    std::ofstream(root_.path() / path) << text;
  }
  void add_gpu(const std::string& place, const std::string& minor, const std::string& cpus) const {
    write("proc/driver/nvidia/gpus/" + place + "/information",
          "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-" + minor + "abc\nDevice Minor: \t " + minor +
              "\n");
    write("sys/bus/pci/devices/" + place + "/local_cpulist", cpus + "\n");
  }
  void add_card(const std::string& interface, const std::string& cpus) const {
    write("sys/class/net/" + interface + "/device/local_cpulist", cpus + "\n");
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return root_.path(); }

 private:
  Directory root_;
};

TEST(GpuPlaceTest, IsThatOfTheVisibleGpus) {
  const FakeRoot root;
  root.add_gpu("0000:1b:00.0", "1", "0-3");
  root.add_gpu("0000:43:00.0", "0", "4-7");
  root.add_gpu("0000:9b:00.0", "2", "8-11");  // not in this container
  root.write("dev/nvidia0", "");
  root.write("dev/nvidia1", "");
  const auto near = [&](const std::vector<std::string>& own) {
    std::string texts;
    for (const Cpus& cpus : cpus_near_gpus(own, root.path())) texts += cpu_list(cpus) + ";";
    return texts;
  };
  EXPECT_EQ(near({}), "0-3;4-7;");
  EXPECT_EQ(near({"CUDA_VISIBLE_DEVICES=1,0"}), "4-7;0-3;");
  EXPECT_EQ(near({"CUDA_VISIBLE_DEVICES=GPU-0a,MIG-x,1,-1,0"}), "4-7;;4-7;");
  EXPECT_EQ(near({"CUDA_VISIBLE_DEVICES="}), "");
  EXPECT_THAT(cpus_near_gpus({}, root.path() / "missing"), IsEmpty());
}

TEST(NetworkCardTest, OnlyARealOneIsNearCpus) {
  const FakeRoot root;
  root.add_card("eth1", "8-11");
  std::filesystem::create_directories(root.path() / "sys/class/net/lo");
  std::filesystem::create_directories(root.path() / "pci/virtio0");
  root.write("pci/local_cpulist", "4-7\n");
  std::filesystem::create_directories(root.path() / "sys/class/net/eth0");
  std::filesystem::create_directory_symlink(root.path() / "pci/virtio0",
                                            root.path() / "sys/class/net/eth0/device");
  EXPECT_EQ(cpu_list(cpus_near_interface("eth0", root.path())), "4-7");
  EXPECT_EQ(cpu_list(cpus_near_interface("eth1", root.path())), "8-11");
  EXPECT_EQ(cpu_list(cpus_near_interface("lo", root.path())), "");
  EXPECT_EQ(cpu_list(cpus_near_interface("eth7", root.path())), "");
}

// Jobs of other tests may hold some of the cores, so each rank gets one of a large node, and only
// the node counts.
class HostBindingTest : public BindingTest {
 protected:
  static constexpr int kNode = 64;

  /// Returns the NUMA node of each of four ranks. They would use the interface "lo".
  [[nodiscard]] std::vector<int> nodes(Variables variables) const {
    variables.emplace_back("HVD_NETWORK_INTERFACES=lo");
    const Binding binding =
        plan_host_binding({.cores = 1}, 4, variables, {"numa:3 core:64 pu:1", root.path()});
    std::vector<int> nodes;
    for (const Cpus& cpus : binding.cpus) nodes.push_back(cpus.at(0) / kNode);
    return nodes;
  }

  FakeRoot root;
};

TEST_F(HostBindingTest, RanksWithoutAGpuAreNearTheNetworkCard) {
  EXPECT_THAT(nodes({}), ElementsAre(0, 0, 0, 0));  // there is no card either
  root.add_card("lo", "128-191");
  EXPECT_THAT(nodes({}), ElementsAre(2, 2, 2, 2));
  root.add_card("lo", "64-191");
  EXPECT_THAT(nodes({}), ElementsAre(1, 1, 1, 1)) << "the first of the nodes that are near";
}

TEST_F(HostBindingTest, RanksWithAGpuAreNearItWhereverTheNetworkCardIs) {
  root.add_card("lo", "0-63");
  root.add_gpu("0000:1b:00.0", "0", "128-191");
  root.add_gpu("0000:43:00.0", "1", "64-127");
  root.write("dev/nvidia0", "");
  root.write("dev/nvidia1", "");
  EXPECT_THAT(nodes({}), ElementsAre(2, 1, 2, 1));
  EXPECT_THAT(nodes({"CUDA_VISIBLE_DEVICES=1"}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(nodes({"CUDA_VISIBLE_DEVICES="}), ElementsAre(0, 0, 0, 0)) << "the card's";
}

}  // namespace
}  // namespace hvd::launcher
