#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/text.hpp>

#include "config/environment.hpp"
#include "config/slurm_step.hpp"

namespace hvd::detail {
namespace {

// Rank 0 serves at a Unix socket whose name follows from the job, so that only its host reaches it.
constexpr std::string_view kOneHost = "unix:@";

struct RankAndSize {
  int rank;
  int size;
};

/// Reads a rank and a size that belong together. Returns nothing when neither is set.
std::optional<RankAndSize> read_pair(const VariableReader& read, std::string_view rank_name,
                                     std::string_view size_name) {
  const auto rank = read.integer(rank_name);
  const auto size = read.integer(size_name);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size) {
    const auto& set = rank ? rank_name : size_name;
    const auto& missing = rank ? size_name : rank_name;
    throw Error(Errc::invalid_argument,
                fmt::format("{} is '{}', but {} is not set", set, *read.text(set), missing));
  }
  if (*size < 1) reject_variable(size_name, *read.text(size_name), "expected 1 or more");
  if (*rank >= *size) {
    reject_variable(rank_name, *read.text(rank_name),
                    fmt::format("expected less than {}, which is {}", size_name, *size));
  }
  return RankAndSize{*rank, *size};
}

/// Reads such a pair for a part of a job of `size` ranks.
std::optional<RankAndSize> read_part(const VariableReader& read, std::string_view rank_name,
                                     std::string_view size_name, int size) {
  const auto found = read_pair(read, rank_name, size_name);
  if (found && found->size > size) {
    reject_variable(size_name, *read.text(size_name),
                    fmt::format("expected at most the size of the job, which is {}", size));
  }
  return found;
}

void set_ranks(Config& config, const RankAndSize& all, const std::optional<RankAndSize>& local,
               const std::optional<RankAndSize>& cross = std::nullopt) {
  config.rank = all.rank;
  config.size = all.size;
  if (local) std::tie(config.local_rank, config.local_size) = std::pair{local->rank, local->size};
  if (cross) std::tie(config.cross_rank, config.cross_size) = std::pair{cross->rank, cross->size};
}

/// Checks a job id, which becomes part of keys and messages, and returns it.
std::string check_job_id(std::string_view name, std::string value) {
  constexpr std::size_t kLongest = 128;
  if (value.empty() || value.size() > kLongest || !is_graphic(value)) {
    reject_variable(name, value, "expected 1 to 128 printable ASCII characters without blanks");
  }
  return value;
}

/// Makes a job id of a launcher's name for the job.
std::string job_id_from(std::string_view prefix, std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::string id = fmt::format("{}-{}", prefix, name.substr(0, kLongest));
  for (char& c : id) {
    if (!is_graphic({&c, 1})) c = '_';
  }
  return id;
}

/// Returns the address of the host and port that two variables name. Throws naming what is wrong.
std::string tcp_address(const VariableReader& read, std::string_view host_name,
                        std::string_view port_name) {
  const std::string host = *read.text(host_name);
  const auto port = read.integer(port_name);
  if (!port) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is '{}', but {} is not set", host_name, host, port_name));
  }
  if (*port < 1 || *port > 65'535) {
    reject_variable(port_name, *read.text(port_name), "expected a port, 1 to 65535");
  }
  if (host.empty() || !is_graphic(host)) {
    reject_variable(host_name, host, "expected a host's name or address");
  }
  return Address{Address::Kind::tcp, host, static_cast<std::uint16_t>(*port)}.to_string();
}

void host_here(Config& config) {
  config.rendezvous = Rendezvous::hosted;
  config.store_address = kOneHost;
}

bool one_host(const Config& config) { return config.local_size == config.size; }

void read_hvd_store(const VariableReader& read, Config& config) {
  const auto store = read.text("HVD_STORE");
  if (!store) {
    if (config.size == 1 || read.has("HVD_RENDEZVOUS")) return;
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_SIZE is '{}', but HVD_STORE, the address at which the ranks "
                            "meet, is not set",
                            config.size));
  }
  try {
    (void)Address::parse(*store);
  } catch (const Error& error) {
    reject_variable("HVD_STORE", *store, error.what());
  }
  config.rendezvous = Rendezvous::store;
  config.store_address = *store;
}

// Each of the following functions reads one row of the table in environment.md and returns false
// when the variables are not set.

/// These are the variables of `hvdrun`.
bool read_hvd(const VariableReader& read, Config& config) {
  const auto all = read_pair(read, "HVD_RANK", "HVD_SIZE");
  if (!all) return false;
  set_ranks(config, *all, read_part(read, "HVD_LOCAL_RANK", "HVD_LOCAL_SIZE", all->size),
            read_part(read, "HVD_CROSS_RANK", "HVD_CROSS_SIZE", all->size));
  config.rank_source = "HVD_*";
  if (auto id = read.text("HVD_JOB_ID")) config.job_id = check_job_id("HVD_JOB_ID", std::move(*id));
  if (const auto restarts = read.integer("HVD_RESTART_COUNT")) {
    config.epoch = static_cast<std::uint32_t>(*restarts);
  }
  if (const auto fd = read.integer("HVD_STATUS_FD")) config.status_fd = *fd;
  read_hvd_store(read, config);
  return true;
}

// LOCAL_RANK alone is common in hand-written job scripts, and torch does without LOCAL_WORLD_SIZE.
std::optional<RankAndSize> read_torch_local(const VariableReader& read, int size) {
  if (read.has("LOCAL_WORLD_SIZE")) return read_part(read, "LOCAL_RANK", "LOCAL_WORLD_SIZE", size);
  const auto local_rank = read.integer("LOCAL_RANK");
  if (local_rank && *local_rank >= size) {
    reject_variable("LOCAL_RANK", *read.text("LOCAL_RANK"),
                    fmt::format("expected less than WORLD_SIZE, which is {}", size));
  }
  return std::nullopt;
}

/// These are the variables of `torchrun`, `torch.distributed.launch` and their imitations.
bool read_torch(const VariableReader& read, Config& config) {
  const auto master = read.text("MASTER_ADDR");
  if (!master) return false;
  const auto all = read_pair(read, "RANK", "WORLD_SIZE");
  if (!all) return false;
  set_ranks(config, *all, read_torch_local(read, all->size));
  config.rank_source = "RANK, WORLD_SIZE and MASTER_ADDR";
  if (const auto restarts = read.integer("TORCHELASTIC_RESTART_COUNT")) {
    config.epoch = static_cast<std::uint32_t>(*restarts);
  }
  if (all->size == 1) return true;
  const std::string address = tcp_address(read, "MASTER_ADDR", "MASTER_PORT");
  // All jobs without a name are called "none", but no two jobs on a host have the same port.
  config.job_id = job_id_from(fmt::format("torch-{}", *read.text("MASTER_PORT")),
                              read.text("TORCHELASTIC_RUN_ID").value_or("none"));
  if (one_host(config) || is_loopback(*master)) {
    host_here(config);
    return true;
  }
  const bool agent_listens = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  config.rendezvous = agent_listens ? Rendezvous::agent : Rendezvous::hosted;
  config.store_address = address;
  return true;
}

/// These are the variables of `horovodrun`, for ranks that it starts itself. Its own rendezvous is
/// an HTTP server of Python's, so ranks on several hosts need HVD_RENDEZVOUS.
bool read_horovod(const VariableReader& read, Config& config) {
  const auto all = read_pair(read, "HOROVOD_RANK", "HOROVOD_SIZE");
  if (!all) return false;
  set_ranks(config, *all, read_part(read, "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", all->size),
            read_part(read, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", all->size));
  config.rank_source = "HOROVOD_*";
  config.job_id = job_id_from(
      "horovod", fmt::format("{}-{}", read.text("HOROVOD_GLOO_RENDEZVOUS_ADDR").value_or(""),
                             read.text("HOROVOD_GLOO_RENDEZVOUS_PORT").value_or("")));
  if (all->size > 1 && one_host(config)) host_here(config);
  return true;
}

/// These are the variables of Open MPI's `mpirun`.
bool read_open_mpi(const VariableReader& read, Config& config) {
  const auto all = read_pair(read, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (!all) return false;
  set_ranks(config, *all,
            read_part(read, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", all->size));
  config.rank_source = "OMPI_COMM_WORLD_*";
  if (all->size > 1) config.rendezvous = Rendezvous::pmix;
  if (auto id = read.text("PMIX_NAMESPACE")) {
    config.job_id = check_job_id("PMIX_NAMESPACE", std::move(*id));
  }
  return true;
}

/// Reads the variables of a PMIx server and asks it for the rest. For Open MPI's `mpirun`, whose
/// own variables hold the answer, the server is not asked.
bool read_pmix(const VariableReader& read, const Surroundings& ask, Config& config) {
  const auto rank = read.integer("PMIX_RANK");
  const auto job = read.text("PMIX_NAMESPACE");
  if (!rank || !job) return false;
  // Slurm's ranks may have inherited the variables of an mpirun that started the job script.
  const bool of_slurm = job->starts_with("slurm.");
  if (!of_slurm && read.integer("OMPI_COMM_WORLD_RANK") == rank) return read_open_mpi(read, config);
  const auto found = ask.pmix();
  if (!found) return false;
  if (found->rank < 0 || found->rank >= found->size) {
    reject_variable(
        "PMIX_RANK", *read.text("PMIX_RANK"),
        fmt::format("expected less than the size of the job, which is {}", found->size));
  }
  set_ranks(config, {found->rank, found->size}, RankAndSize{found->local_rank, found->local_size});
  config.rank_source = "PMIx";
  config.job_id = check_job_id("PMIX_NAMESPACE", *job);
  if (found->size > 1) config.rendezvous = Rendezvous::pmix;
  return true;
}

void use(const SlurmStep& step, Config& config) {
  config.job_id = step.job;
  config.epoch = static_cast<std::uint32_t>(step.restarts);
  if (step.size == 1) return;
  if (step.nodes == 1 || step.local_size == step.size) return host_here(config);
  if (step.first_node.empty() || !is_graphic(step.first_node)) return;
  config.rendezvous = Rendezvous::hosted;
  config.store_address =
      Address{Address::Kind::tcp, step.first_node, static_cast<std::uint16_t>(step.first_port)}
          .to_string();
  config.store_ports = step.ports;
}

/// These are the variables of MPICH's `mpiexec` (Hydra) and `srun --mpi=pmi2`. Their PMI exchange
/// is left to the MPI library that the program may start later, because a second client would
/// confuse the server.
bool read_pmi(const VariableReader& read, const Surroundings& ask, Config& config) {
  const auto all = read_pair(read, "PMI_RANK", "PMI_SIZE");
  if (!all) return false;
  set_ranks(config, *all, read_part(read, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", all->size));
  config.rank_source = "PMI_*";
  const auto step = read_slurm_step(read);
  if (step && step->rank == all->rank && step->size == all->size) {
    if (!read.has("MPI_LOCALRANKID")) {
      set_ranks(config, *all, RankAndSize{step->local_rank, step->local_size});
    }
    use(*step, config);
    return true;
  }
  const auto socket = read.integer("PMI_FD");
  if (all->size == 1 || !one_host(config) || !socket) return true;
  // Hydra does not name its jobs, but each of them has one proxy on this host.
  if (const auto proxy = ask.peer_process(*socket)) {
    config.job_id = fmt::format("pmi-{}", *proxy);
    host_here(config);
  }
  return true;
}

/// These are the variables of `srun`, whichever way it starts MPI.
bool read_slurm(const VariableReader& read, Config& config) {
  const auto step = read_slurm_step(read);
  if (!step) return false;
  set_ranks(config, {step->rank, step->size}, RankAndSize{step->local_rank, step->local_size});
  config.rank_source = "SLURM_*";
  use(*step, config);
  return true;
}

/// Without MASTER_ADDR, the ranks that RANK and WORLD_SIZE describe would each run a job of their
/// own.
void refuse_torch_without_master(const VariableReader& read) {
  const auto found = read_pair(read, "RANK", "WORLD_SIZE");
  if (!found || found->size == 1) return;
  reject_variable("WORLD_SIZE", *read.text("WORLD_SIZE"), "but MASTER_ADDR is not set");
}

void read_rendezvous(const VariableReader& read, Config& config) {
  const auto address = read.text("HVD_RENDEZVOUS");
  if (!address || config.size == 1 || config.rendezvous == Rendezvous::store) return;
  config.store_address = fmt::format("tcp:{}", *address);
  try {
    (void)Address::parse(config.store_address);
  } catch (const Error&) {
    reject_variable("HVD_RENDEZVOUS", *address, "expected host:port or [address]:port");
  }
  config.rendezvous = Rendezvous::hosted;
  config.store_ports = 1;
}

void read_secret(const VariableReader& read, Config& config) {
  read.flag("HVD_INSECURE", config.insecure);
  if (config.size == 1 && config.rendezvous == Rendezvous::none) return;
  if (const auto fd = read.integer("HVD_SECRET_FD")) config.secret_fd = *fd;
  config.secret_file = read.text("HVD_SECRET_FILE").value_or("");
}

}  // namespace

void read_job(const VariableReader& read, const Surroundings& ask, Config& config) {
  const bool found = read_hvd(read, config) || read_torch(read, config) ||
                     read_horovod(read, config) || read_pmix(read, ask, config) ||
                     read_open_mpi(read, config) || read_pmi(read, ask, config) ||
                     read_slurm(read, config);
  if (!found) refuse_torch_without_master(read);
  read_rendezvous(read, config);
  read_secret(read, config);
}

}  // namespace hvd::detail
