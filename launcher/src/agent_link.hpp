// hvdrun's side of one agent: the process, or the ssh client that leads to it, and the stream.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include <hvd/core/types.hpp>

#include "agent_command.hpp"
#include "agent_loss.hpp"
#include "frame_stream.hpp"
#include "heartbeat.hpp"

namespace hvd::launcher {

class AgentLink {
 public:
  struct Handlers {
    std::function<void()> on_ready;  ///< it is an agent of this version: frames may be sent
    std::function<void(Frame)> on_frame;
    std::function<void(std::string)> on_words;  ///< what ssh or a remote agent wrote to stderr
    /// Once, when the agent is gone without having been told to go.
    std::function<void(AgentLoss)> on_lost;
  };

  /// Starts the agent. Throws LaunchError (71).
  AgentLink(boost::asio::io_context& io, const AgentCommand& command);
  /// The agent has come by itself, over `stream`.
  AgentLink(boost::asio::io_context& io, UniqueFd stream);
  /// As `close`, and waits for the agent, at most until 2 s after `close`.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  void start(Handlers handlers);
  void send(const Frame& frame) { stream_->send(frame); }
  /// Closes the stream, which ends the agent and all that descends from it. No handler is called
  /// afterwards.
  void close();

 private:
  void on_greeting(const std::string& version);
  void on_stream_end(const std::string& why);
  void read_words();
  void take_words(std::string_view text);
  void drain_words();
  void watch();
  void lose();

  pid_t pid_ = -1;
  AgentLoss loss_;
  Handlers handlers_;
  std::optional<boost::asio::posix::stream_descriptor> process_;
  std::optional<boost::asio::posix::stream_descriptor> words_;
  std::array<char, 4096> buffer_{};
  std::string said_;  ///< the end of what came on `words_`
  std::optional<FrameStream> stream_;
  Heartbeat heartbeat_;
  boost::asio::steady_timer end_timer_;
  std::optional<Deadline> closed_;  ///< until when to wait
};

/// What `hvdrun` does when it is started as an agent. `stdin_of_first` is a descriptor, -1 for
/// none.
int run_agent(int stdin_of_first);
/// The same where no hvdrun looks after what a dying agent leaves.
int run_remote_agent();

/// The hidden first arguments that make hvdrun an agent.
inline constexpr std::string_view kAgentArgument = "--agent";
inline constexpr std::string_view kRemoteAgentArgument = "--remote-agent";

}  // namespace hvd::launcher
