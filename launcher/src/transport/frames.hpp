// Defines the frames between hvdrun and its agents; `End` and `RankEnd` are in job_policy.hpp.
// Every frame is a u32 length, a u8 kind and the fields in order, little-endian.
// docs/internals/launcher.md describes which side sends which frame, and when.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/wire.hpp>

#include "plan/binding.hpp"
#include "supervise/job_policy.hpp"
#include "supervise/rank_output.hpp"

namespace hvd::launcher {

/// Says whether an agent serves the store in which the ranks of the job find each other.
enum class RendezvousReach : std::uint8_t {
  elsewhere,  ///< another host's agent serves the store
  machine,    ///< this agent serves it on a Unix socket: all ranks are on this machine
  network,    ///< this agent serves it at an address that other machines reach
};

/// hvdrun → agent, first frame: this describes the job. The agent checks it before any rank is
/// started.
struct Prepare {
  struct Rank {
    std::int32_t rank = 0;
    std::vector<std::string> variables;  ///< "NAME=value"; these override all others
  };
  std::string version;  ///< of hvdrun; an agent of another version refuses
  std::string job_id;
  std::uint32_t epoch = 0;  ///< restarts so far
  RendezvousReach rendezvous = RendezvousReach::elsewhere;
  /// The time that a host may be silent, 2 s or more, for which both sides send `Beat`; 0 when
  /// there is no network between hvdrun and the agent.
  std::chrono::milliseconds host_timeout{0};
  std::string interfaces;  ///< as in `Config::interfaces`
  std::string directory;
  std::vector<std::string> program;      ///< its name and its arguments
  std::vector<std::string> environment;  ///< for all ranks; overrides the agent's own
  std::vector<Rank> ranks;               ///< the ranks of this host, by local rank
  /// The most workers of an elastic job that may run on the host. Such a job has no `ranks`:
  /// workers are started by `StartWorker`. 0: the job is not elastic.
  std::int32_t workers = 0;
  Secret secret;
  BindingOptions binding{};
};
/// hvdrun → agent: every host is prepared, and the agent shall start the ranks.
struct Launch {
  std::vector<std::string> variables{};  ///< "NAME=value"; override `Prepare::environment`
};
/// hvdrun → agent: the agent shall send a signal to all ranks, without ending the job.
struct Forward {
  std::int32_t signal = 0;
};
/// hvdrun → agent: `bytes` more of output may be sent.
struct Credit {
  std::uint32_t bytes = 0;
};

/// agent → hvdrun: the program exists and can be executed.
struct Prepared {
  std::string hostname;
  std::int32_t threads = 0;  ///< the OMP_NUM_THREADS that it sets; 0: the user has set it
  // The agent that serves the store sets these. They are empty and 0 from other agents.
  std::string store{};        ///< its address
  std::string master_host{};  ///< for programs that read torch's names
  std::uint16_t master_port = 0;
  std::string unbound{};  ///< why it does not bind the ranks, unless the user wants that
};
/// agent → hvdrun, last frame: the agent runs no rank and will run none.
struct Refused {
  std::int32_t code = 0;  ///< for hvdrun to exit with
  std::string message;
};
/// agent → hvdrun: a rank was started.
struct Started {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
  std::string cpus{};  ///< to which the agent has bound it, as from `cpu_list`; empty: to none
};
/// agent → hvdrun: this is output of a rank, as far as there is credit.
struct Output {
  std::int32_t rank = 0;
  Stream stream = Stream::out;
  Bytes bytes;
};
/// agent → hvdrun: a rank has ended; more of its output may follow.
using Exited = RankEnd;
/// agent → hvdrun: all ranks and their descendants are gone; the rest of their output follows.
struct Gone {};
/// agent → hvdrun, last frame: all output was sent.
struct Done {};
/// In both directions: a heartbeat.
struct Beat {};
/// In both directions: until the next frame of the sender, its silence is no sign of a failure.
/// hvdrun is about to be stopped (Ctrl-Z), or an agent prepares, which may block it.
struct Suspend {};

// In node mode (docs/how-to/node_mode.md) nodes also send the frames below, and a node sends
// `Forward` to the leading node to pass on a signal of its user.

/// node → leading node: the node asks to join the job, before it greets as an agent.
struct Join {
  std::string version;
  std::int32_t node_rank = -1;  ///< -1: any that is free
  std::int32_t nodes = 0;       ///< the number of nodes in the job, from this node's options
  std::int32_t processes = 0;   ///< the number of ranks that it will run
  std::string hostname;         ///< printable
};
/// leading node → node, last frame: this try of the job has ended. The node prints the report, and
/// exits with the code unless `again` is set.
struct Finished {
  std::int32_t code = 0;
  bool again = false;  ///< all ranks are restarted: the node shall join again
  std::string report;
};

/// hvdrun → agent: asks for the status of the ranks. The agent answers with a `RankUsage` for each
/// running rank, and with a `RankAnswer` for each that uses the library.
struct StatusRequest {};
/// agent → hvdrun: these are the resources that the processes of a rank use.
struct RankUsage {
  std::int32_t rank = 0;
  std::chrono::milliseconds cpu{0};  ///< user and system time so far
  std::uint64_t memory = 0;          ///< resident bytes
  // These are for the GPUs that the processes use, where that is known.
  std::optional<std::uint64_t> gpu_memory{};  ///< bytes
  std::optional<std::uint8_t> gpu_load{};     ///< percent, of the busiest
};
/// agent → hvdrun: a rank has answered, normally with a `RankReport`.
struct RankAnswer {
  std::int32_t rank = 0;
  Bytes bytes;
};

// The frames below are those of an elastic job (docs/internals/launcher.md). Its agents start no
// rank at `Launch`, and send `Gone` only after `End`. In the other frames `rank` is the number of a
// worker, which is never used again.

/// hvdrun → agent: the agent shall start a worker.
struct StartWorker {
  std::int32_t rank = 0;
  std::int32_t workers = 1;  ///< as in `Prepare`, at this time: it decides about the worker's cores
};
/// hvdrun → agent: the agent shall kill a worker with SIGKILL.
struct KillWorker {
  std::int32_t rank = 0;
};
/// In both directions: a message between hvdrun and a worker, as in `elastic_messages.hpp`. The
/// sender has not checked what a worker says.
struct ElasticMessage {
  std::int32_t rank = 0;
  Bytes bytes{};  ///< at most `kMaxElasticMessage`
};
/// hvdrun → agent: the agent shall serve the store of a generation, and none of an earlier one.
struct Serve {
  std::uint32_t generation = 0;  ///< 1 or more
  RendezvousReach reach = RendezvousReach::machine;
};
/// agent → hvdrun: the agent serves this store.
struct Served {
  std::uint32_t generation = 0;
  std::string store{};  ///< this and the next two are as in `Prepared`
  std::string master_host{};
  std::uint16_t master_port = 0;
};

using Frame =
    std::variant<Prepare, Launch, Forward, End, Credit, Prepared, Refused, Started, Output, Exited,
                 Gone, Done, Beat, Suspend, Join, Finished, StatusRequest, RankUsage, RankAnswer,
                 StartWorker, KillWorker, ElasticMessage, Serve, Served>;

/// Bounds that both sides check.
inline constexpr std::chrono::milliseconds kLeastHostTimeout{2'000};
inline constexpr std::int32_t kMostNodes = 65'536;
inline constexpr std::int32_t kMostWorkers = 65'536;  ///< of a host at once
inline constexpr std::size_t kMaxFrame = std::size_t{16} << 20;
/// The most bytes of a `RankAnswer`.
inline constexpr std::size_t kMaxRankAnswer = std::size_t{16} << 10;

/// Returns the frame with its length in front. Throws Errc::invalid_argument when it exceeds
/// `kMaxFrame`.
[[nodiscard]] Bytes encode(const Frame& frame);
/// Decodes a frame from `bytes`, which do not include the length. Throws Errc::protocol.
[[nodiscard]] Frame decode(std::span<const std::byte> bytes);

}  // namespace hvd::launcher
