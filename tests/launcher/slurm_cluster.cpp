#include "slurm_cluster.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <fmt/format.h>
#include <unistd.h>

#include "free_port.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfiguration = R"(ClusterName=test
SlurmctldHost={0}(127.0.0.1)
SlurmctldPort={2}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={1}/state
SlurmdSpoolDir={1}/spool.%n
SlurmctldPidFile={1}/ctld.pid
SlurmdPidFile={1}/%n.pid
SlurmctldLogFile={1}/ctld.log
SlurmdLogFile={1}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
MpiDefault=none
GresTypes=gpu
NodeName={5} NodeHostname={0} NodeAddr=127.0.0.1 Port={3} CPUs=4 Gres=gpu:4
NodeName={6} NodeHostname={0} NodeAddr=127.0.0.1 Port={4} CPUs=4 Gres=gpu:4
PartitionName=all Nodes={5},{6} Default=YES MaxTime=INFINITE State=UP
)";

}  // namespace

std::string SlurmCluster::lacks() {
  if (::geteuid() != 0) return "root";
  for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/srun"}) {
    if (!fs::exists(program)) return program;
  }
  return "";
}

SlurmCluster::SlurmCluster(const std::string& first_node, const std::string& second_node) {
  const fs::path& place = directory_.path();
  const std::string text = fmt::format(kConfiguration, own_host_name(), place.string(), free_port(),
                                       free_port(), free_port(), first_node, second_node);
  fs::create_directory(place / "state");
  // Slurm takes any file for the device of a GPU.
  for (const char* gpu : {"gpu0", "gpu1", "gpu2", "gpu3"}) std::ofstream{place / gpu};
  const std::string gpus = fmt::format("Name=gpu File={}/gpu[0-3]\n", place.string());
  for (const std::string& node : {first_node, second_node}) {
    fs::create_directory(place / ("spool." + node));
    // The daemons of one machine must not share this folder, because the PMIx server of a node
    // creates its sockets there.
    fs::create_directories(place / node / "pmix");
    std::ofstream(place / node / "slurm.conf") << text;
    std::ofstream(place / node / "gres.conf") << gpus;
    std::ofstream(place / node / "mpi.conf")
        << fmt::format("PMIxCliTmpDirBase={}\n", (place / node / "pmix").string());
  }
  std::ofstream(place / "slurm.conf") << text;
  std::ofstream(place / "gres.conf") << gpus;
  daemons_[0].emplace(with_configuration("", {"/usr/sbin/slurmctld", "-D"}));
  daemons_[1].emplace(with_configuration(first_node, {"/usr/sbin/slurmd", "-D", "-N", first_node}));
  daemons_[2].emplace(
      with_configuration(second_node, {"/usr/sbin/slurmd", "-D", "-N", second_node}));
  const auto deadline = test::in(kPatience);
  while (run(command({"sinfo", "-h", "-t", "idle", "-o", "%D"})).out != "2\n") {
    if (Clock::now() > deadline) throw std::runtime_error("the cluster does not come up");
    ::usleep(50'000);
  }
}

test::ProcessOptions SlurmCluster::command(std::vector<std::string> arguments) const {
  return with_configuration("", std::move(arguments));
}

test::ProcessOptions SlurmCluster::with_configuration(const std::string& folder,
                                                      std::vector<std::string> arguments) const {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = {{"SLURM_CONF", (directory_.path() / folder / "slurm.conf").string()}};
  options.directory = directory_.path();
  return options;
}

}  // namespace hvd::launcher
