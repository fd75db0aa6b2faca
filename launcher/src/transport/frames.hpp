// Defines the frames between hvdrun and its agents; `End` is that of job_policy.hpp.
// Every frame is a u32 length, a u8 kind and the fields in order, little-endian;
// docs/reference/hvdrun.md tells who says what when.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/secret.hpp>
#include <hvd/core/wire.hpp>

#include "supervise/job_policy.hpp"
#include "supervise/rank_output.hpp"

namespace hvd::launcher {

/// Where the ranks of a job meet.
enum class Meeting : std::uint8_t {
  elsewhere,  ///< another host's agent serves the store
  machine,    ///< this agent does, on a Unix socket: all ranks are on this machine
  network,    ///< this agent does, at an address that other machines reach
};

/// hvdrun → agent, first frame: everything there is to know, to be checked before anything starts.
struct Prepare {
  struct Rank {
    std::int32_t rank = 0;
    std::vector<std::string> variables;  ///< "NAME=value", over all others
  };
  std::string version;  ///< of hvdrun; an agent of another version refuses
  std::string job_id;
  std::uint32_t epoch = 0;  ///< restarts so far
  Meeting meeting = Meeting::elsewhere;
  /// How long a host may be silent, 2 s or more: both sides send `Beat`. 0 where no network lies
  /// between the two.
  std::chrono::milliseconds host_timeout{0};
  std::string interfaces;  ///< as in `Config::interfaces`
  std::string directory;
  std::vector<std::string> program;      ///< its name and its arguments
  std::vector<std::string> environment;  ///< of all ranks, over the agent's own
  std::vector<Rank> ranks;               ///< of this host, by local rank
  Secret secret;
};
/// hvdrun → agent: every host is prepared, start the ranks.
struct Launch {
  std::vector<std::string> variables{};  ///< "NAME=value", over `Prepare::environment`
};
/// hvdrun → agent: pass a signal on to all ranks and leave it at that.
struct Forward {
  std::int32_t signal = 0;
};
/// hvdrun → agent: so many more bytes of output may be sent.
struct Credit {
  std::uint32_t bytes = 0;
};

/// agent → hvdrun: the program is there and can be executed.
struct Prepared {
  std::string hostname;
  std::int32_t threads = 0;  ///< the OMP_NUM_THREADS it sets; 0: the user has set it
  // Of the agent that serves the store; empty and 0 from others.
  std::string store{};        ///< its address
  std::string master_host{};  ///< for programs that read torch's names
  std::uint16_t master_port = 0;
};
/// agent → hvdrun: nothing runs, and nothing will.
struct Refused {
  std::int32_t code = 0;  ///< for hvdrun to exit with
  std::string message;
};
/// agent → hvdrun: a rank runs.
struct Started {
  std::int32_t rank = 0;
  std::int32_t pid = 0;
};
/// agent → hvdrun: what a rank wrote, as far as credit goes.
struct Output {
  std::int32_t rank = 0;
  Stream stream = Stream::out;
  Bytes bytes;
};
/// agent → hvdrun: a rank is over; more of its output may follow.
struct Exited {
  std::int32_t rank = 0;
  std::int32_t status = 0;  ///< as from waitpid
  std::chrono::milliseconds elapsed{0};
  bool without_shutdown = false;  ///< it exited 0, and had joined the library's job and not left it
};
/// agent → hvdrun: all ranks and their descendants are gone; the rest of their output follows.
struct Gone {};
/// agent → hvdrun, last frame: that was all.
struct Done {};
/// Either way: a sign of life.
struct Beat {};
/// hvdrun → agent: hvdrun is about to be stopped (Ctrl-Z); its silence means nothing until its next
/// frame.
struct Suspend {};

// In node mode (docs/how-to/node_mode.md) nodes also send the following, and a node sends `Forward`
// to the leading node: a signal that its user sent.

/// node → the leading one, before it greets as an agent.
struct Join {
  std::string version;
  std::int32_t node_rank = -1;  ///< -1: any that is free
  std::int32_t nodes = 0;       ///< of the job, as this node was told
  std::int32_t processes = 0;   ///< ranks it will run
  std::string hostname;         ///< printable
};
/// the leading node → node, last frame: what to exit with, and what to say before.
struct Finished {
  std::int32_t code = 0;
  bool again = false;  ///< all ranks are started anew: come back
  std::string report;
};

/// hvdrun → agent: how do the ranks get on? Answered by `RankUsage` for each rank that runs, and by
/// `RankAnswer` for those of the library.
struct StatusRequest {};
/// agent → hvdrun: what the processes of a rank take from their machine.
struct RankUsage {
  std::int32_t rank = 0;
  std::chrono::milliseconds cpu{0};  ///< user and system time so far
  std::uint64_t memory = 0;          ///< resident bytes
  // Of the GPUs they use, where that is known.
  std::optional<std::uint64_t> gpu_memory{};  ///< bytes
  std::optional<std::uint8_t> gpu_load{};     ///< percent, of the busiest
};
/// agent → hvdrun: what a rank answered, which should be a `RankReport`.
struct RankAnswer {
  std::int32_t rank = 0;
  Bytes bytes;
};

using Frame =
    std::variant<Prepare, Launch, Forward, End, Credit, Prepared, Refused, Started, Output, Exited,
                 Gone, Done, Beat, Suspend, Join, Finished, StatusRequest, RankUsage, RankAnswer>;

/// Bounds that both sides keep.
inline constexpr std::chrono::milliseconds kLeastHostTimeout{2'000};
inline constexpr std::int32_t kMostNodes = 65'536;
inline constexpr std::size_t kMaxFrame = std::size_t{16} << 20;
/// What a rank says of itself.
inline constexpr std::size_t kMaxRankAnswer = std::size_t{16} << 10;

/// The frame with its length in front. Throws Errc::invalid_argument when it exceeds `kMaxFrame`.
[[nodiscard]] Bytes encode(const Frame& frame);
/// `bytes` without the length. Throws Errc::protocol.
[[nodiscard]] Frame decode(std::span<const std::byte> bytes);

}  // namespace hvd::launcher
