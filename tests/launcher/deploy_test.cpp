// Checks the files in deploy/ against their purpose, without applying them.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include "cli/options.hpp"

namespace hvd::launcher {
namespace {

const std::string kDeploy = HVD_DEPLOY;

test::ProcessResult run(std::vector<std::string> arguments) {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  return test::run_process(std::move(options), test::in(std::chrono::seconds{30}));
}

/// Checks the parts of kubeflow.org/v2beta1's MPIJob that the file uses.
TEST(DeployTest, TheJobIsAnMpiJob) {
  const YAML::Node job = YAML::LoadFile(kDeploy + "/mpijob.yaml");
  EXPECT_EQ(job["apiVersion"].as<std::string>(), "kubeflow.org/v2beta1");
  EXPECT_EQ(job["kind"].as<std::string>(), "MPIJob");
  EXPECT_FALSE(job["metadata"]["name"].as<std::string>().empty());
  const YAML::Node spec = job["spec"];
  EXPECT_EQ(spec["mpiImplementation"].as<std::string>(), "OpenMPI");
  for (const auto& key : spec) {
    EXPECT_THAT((std::vector<std::string>{"slotsPerWorker", "mpiImplementation", "runPolicy",
                                          "mpiReplicaSpecs"}),
                testing::Contains(key.first.as<std::string>()));
  }
  const YAML::Node replicas = spec["mpiReplicaSpecs"];
  EXPECT_EQ(replicas["Launcher"]["replicas"].as<int>(), 1);
  for (const char* role : {"Launcher", "Worker"}) {
    const YAML::Node pod = replicas[role]["template"]["spec"];
    EXPECT_EQ(replicas[role]["restartPolicy"].as<std::string>(), "Never");
    ASSERT_EQ(pod["containers"].size(), 1U);
    EXPECT_TRUE(pod["containers"][0]["name"]);
    EXPECT_TRUE(pod["containers"][0]["image"]);
    for (const auto& mount : pod["containers"][0]["volumeMounts"]) {
      const auto is_it = [&](const YAML::Node& volume) {
        return volume["name"].as<std::string>() == mount["name"].as<std::string>();
      };
      const YAML::Node volumes = pod["volumes"];
      EXPECT_TRUE(std::any_of(volumes.begin(), volumes.end(), is_it));
    }
  }
  // A worker without command and arguments gets sshd as its command from the operator, and any
  // command takes the place of the image's entry point.
  const auto command_of = [&](const char* role) {
    return replicas[role]["template"]["spec"]["containers"][0]["command"];
  };
  EXPECT_FALSE(command_of("Launcher"));
  EXPECT_EQ(command_of("Worker").as<std::vector<std::string>>(),
            std::vector<std::string>{"/usr/local/bin/entrypoint"});
}

TEST(DeployTest, TheJobsCommandFitsItsWorkers) {
  const YAML::Node spec = YAML::LoadFile(kDeploy + "/mpijob.yaml")["spec"];
  const YAML::Node replicas = spec["mpiReplicaSpecs"];
  auto words = replicas["Launcher"]["template"]["spec"]["containers"][0]["args"]
                   .as<std::vector<std::string>>();
  ASSERT_EQ(words.front(), "hvdrun");
  words.erase(words.begin());
  const Options options = parse_options(words);
  EXPECT_EQ(options.num_proc,
            spec["slotsPerWorker"].as<int>() * replicas["Worker"]["replicas"].as<int>());
  EXPECT_EQ(options.hostfile, "/etc/mpi/hostfile");
  EXPECT_EQ(options.launcher, Launcher::ssh);
}

TEST(DeployTest, TheImageIsMadeOfWhatIsThere) {
  std::ifstream file(kDeploy + "/Dockerfile");
  std::vector<std::string> instructions;
  std::string joined;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.pop_back();
    joined += line;
    if (goes_on || joined.empty()) continue;
    instructions.push_back(std::exchange(joined, {}));
  }
  // The base images can be named for use without a registry; the default is Debian in one version.
  EXPECT_EQ(instructions.at(0), "ARG BASE=debian:12");
  EXPECT_EQ(instructions.at(1), "ARG SLIM=debian:12-slim");
  EXPECT_TRUE(instructions.at(2).starts_with("FROM "));
  for (const std::string& one : instructions) {
    const std::string word = one.substr(0, one.find(' '));
    EXPECT_THAT((std::vector<std::string>{"ARG", "FROM", "SHELL", "WORKDIR", "COPY", "RUN", "ENV",
                                          "ENTRYPOINT"}),
                testing::Contains(word));
    if (word == "FROM") {
      EXPECT_THAT(one, testing::ContainsRegex(R"re(^FROM \$\{(BASE|SLIM)\})re"));
    }
    if (one.find("apt-get install") != std::string::npos) {
      EXPECT_THAT(one, testing::AllOf(testing::HasSubstr("--no-install-recommends"),
                                      testing::HasSubstr("rm -rf /var/lib/apt/lists")));
    }
  }
  EXPECT_EQ(::access((kDeploy + "/entrypoint").c_str(), X_OK), 0);
  EXPECT_EQ(::access((kDeploy + "/../scripts/install_deps").c_str(), X_OK), 0);
}

TEST(DeployTest, TheEntryPointIsAShellScript) {
  EXPECT_EQ(run({"bash", "-n", kDeploy + "/entrypoint"}).exit_code(), 0);
  EXPECT_EQ(run({"env", "-u", "K_MPI_JOB_ROLE", kDeploy + "/entrypoint", "sh", "-c", "exit 7"})
                .exit_code(),
            7);
}

TEST(DeployTest, Lints) {
  if (::access("/usr/bin/yamllint", X_OK) != 0) GTEST_SKIP() << "needs yamllint";
  const auto result = run({"yamllint", "-d", "{extends: default, rules: {document-start: disable}}",
                           kDeploy + "/mpijob.yaml"});
  EXPECT_EQ(result.exit_code(), 0) << result.out;
}

}  // namespace
}  // namespace hvd::launcher
