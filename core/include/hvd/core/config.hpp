// Holds every setting of a context. config/environment.cpp is the only file of core that reads the
// environment.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/log.hpp>

namespace hvd {

/// Selects how a rank finds the others.
enum class Rendezvous : std::uint8_t {
  none,    ///< one process, alone
  store,   ///< a store server at `Config::store_address` (`hvdrun` runs one)
  pmix,    ///< the PMIx server of `mpirun` or `srun --mpi=pmix`
  hosted,  ///< rank 0 serves a store at `Config::store_address`
  agent,   ///< the store of torchrun's agent, at `Config::store_address`
};

struct Config {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< -1: computed from the hosts of the ranks, like the next three
  int local_size = -1;
  int cross_rank = -1;
  int cross_size = -1;
  /// Some of the launcher's ranks, which make a job of their own; empty: all. Their ranks in that
  /// job are their positions in this list. The other ranks may make further jobs, but the launcher
  /// ends all of them when one fails.
  std::vector<int> ranks;

  std::string job_id = "local";
  std::uint32_t epoch = 0;  ///< restarts so far; a rank of another epoch is refused
  /// Contexts of different generations do not see each other's keys in a store. If this is 0, the
  /// process takes its number of earlier contexts of the job, unless the program gives the store.
  std::uint32_t generation = 0;

  Rendezvous rendezvous = Rendezvous::none;
  /// `HVD_STORE`, `HVD_RENDEZVOUS` or the address that a launcher's variables give, spelled as in
  /// `address.hpp`. "unix:@" with `hosted` means that all ranks are on one host and that the
  /// socket's name follows from the job.
  std::string store_address;
  int store_ports = 1;      ///< hosted on TCP: rank 0 takes the first free one of this many ports
  int secret_fd = -1;       ///< `HVD_SECRET_FD`: an inherited descriptor, read with pread
  std::string secret_file;  ///< `HVD_SECRET_FILE`: 0600, owned by this user
  bool insecure = false;    ///< `HVD_INSECURE`: several hosts without a secret; 0 or 1
  std::string rank_source;  ///< the variables that gave the rank, as "SLURM_*"; empty for none
  std::string error_file;   ///< `TORCHELASTIC_ERROR_FILE`: takes the first error; empty: none
  int status_fd = -1;  ///< `HVD_STATUS_FD`: an inherited socket on which hvdrun asks for a report
  /// While the context starts, anything to read on this descriptor makes that fail with
  /// Errc::aborted. `elastic_run` passes the socket on which hvdrun would tell it to give up.
  int interrupt_fd = -1;

  std::string backend = "auto";    ///< `HVD_BACKEND`: auto, native, mpi, nccl
  std::string transport = "auto";  ///< `HVD_TRANSPORT`: auto, shm, tcp
  /// `HVD_TCP_STREAMS` to each neighbour, at most 16; 0: 2 in a job on one host, 4 in others.
  int tcp_streams = 0;
  /// `HVD_PLAN` of rank 0: the algorithm for each size. The value is auto (measured), default
  /// (constants), or a plan as `HVD_LOG=plan` prints it.
  std::string plan = "auto";
  std::string plan_file;  ///< `HVD_PLAN_FILE`: where rank 0 saves its measurements; empty: nowhere
  /// `HVD_ARENA_SIZE`: bytes of address space for each rank's part of the host's shared memory,
  /// which take memory only when allocated; 0: half of the machine's memory divided by its ranks.
  std::size_t arena_size = 0;
  /// `HVD_TUNE_MALLOC`: the LibTorch bindings set the thresholds of glibc's malloc
  /// (docs/reference/torch.md); 0 or 1. 0 is the default where the environment sets them already.
  bool tune_malloc = true;
  /// `HVD_CHECK_REPLICAS_EVERY`: after so many reductions of an optimizer's gradients the ranks
  /// compare their parameters (docs/reference/torch.md); 0: never.
  int check_replicas_every = 0;
  /// `HVD_STREAM_ORDERED`: the end of a backward pass and `step()` let a GPU's stream, not the
  /// thread, wait for the gradients that NCCL reduces (docs/reference/torch.md); 0 or 1.
  bool stream_ordered = true;
  /// `HVD_CONTROL_FANOUT`: how many children a rank has at most in the control tree, 2 or more; 0:
  /// all ranks are children of rank 0 in a job of up to 256. In a larger one rank 0 has up to 23
  /// children, and others up to 80.
  int control_fanout = 0;
  std::string interfaces;  ///< `HVD_NETWORK_INTERFACES`: names or CIDR, comma separated

  std::size_t fusion_threshold = std::size_t{16} << 20;  ///< `HVD_FUSION_THRESHOLD`, bytes
  int freeze_after =
      3;  ///< `HVD_FREEZE_AFTER`: identical steps before a schedule is frozen; 0: never
  bool autotune = false;     ///< `HVD_AUTOTUNE`: rank 0 searches for better bucket sizes; 0 or 1
  int autotune_cycles = 10;  ///< `HVD_AUTOTUNE_CYCLES`: steps of a trial that count, 1 to 10,000
  std::string autotune_log;  ///< `HVD_AUTOTUNE_LOG`: a file that rank 0 writes; empty: none
  std::string
      timeline;  ///< `HVD_TIMELINE`: a file name for all ranks, see `timeline_path`; empty: off
  int metrics_port = 0;  ///< `HVD_METRICS_PORT`: of local rank 0, then one more per rank; 0: none
  LogLevel log_level = LogLevel::warn;  ///< `HVD_LOG`

  std::chrono::milliseconds start_timeout{30'000};    ///< `HVD_START_TIMEOUT`, s
  std::chrono::milliseconds heartbeat_interval{100};  ///< `HVD_HEARTBEAT_INTERVAL_MS`
  /// `HVD_PEER_TIMEOUT_MS`: a job fails when a rank is silent for so long while its host answers.
  std::chrono::milliseconds peer_timeout{1'800};
  /// `HVD_HOST_TIMEOUT_S`, 2 or more, at least `peer_timeout`: a job fails when a host is silent
  /// for so long.
  std::chrono::milliseconds host_timeout{10'000};
  std::chrono::milliseconds collective_timeout{
      300'000};  ///< `HVD_COLLECTIVE_TIMEOUT_S`, from the start of a collective
  std::chrono::milliseconds stall_warn{60'000};           ///< `HVD_STALL_WARN_S`; 0: off
  std::chrono::milliseconds stall_abort{1'800'000};       ///< `HVD_STALL_ABORT_S`; 0: off
  std::chrono::milliseconds shutdown_timeout{1'800'000};  ///< `HVD_SHUTDOWN_TIMEOUT_S`

  /// Reads `HVD_*`, then what launchers set (docs/reference/environment.md has the order); asks the
  /// PMIx server where `mpirun` or `srun` has started one for this process. Throws
  /// Errc::invalid_argument naming the variable that is half a pair, no number or out of range.
  [[nodiscard]] static Config from_environment();
  /// Reads only the settings, which docs/reference/environment.md lists under "Tuning", and nothing
  /// about a job: the result describes a rank alone. Throws like `from_environment`.
  [[nodiscard]] static Config settings_from_environment();
};

}  // namespace hvd
