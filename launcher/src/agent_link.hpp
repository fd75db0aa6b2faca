// hvdrun's side of one agent: the process and the stream to it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/types.h>

#include "frame_stream.hpp"

namespace hvd::launcher {

class AgentLink {
 public:
  /// Runs this very program again as an agent on this host. `standard_input` is for the first rank
  /// of the host, -1 for none. Throws LaunchError (71).
  AgentLink(boost::asio::io_context& io, int standard_input);
  /// Closes the stream, which ends the agent and all that descends from it, and waits for it.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  /// `on_lost` is called once when the agent is gone without having been told to go, with how it
  /// ended.
  void start(std::function<void(Frame)> on_frame, std::function<void(std::string)> on_lost);
  void send(const Frame& frame) { stream_->send(frame); }

 private:
  void watch();

  pid_t pid_ = -1;
  std::optional<boost::asio::posix::stream_descriptor> process_;
  std::optional<FrameStream> stream_;
  std::function<void(std::string)> on_lost_;
};

/// What `hvdrun` does when it is started as an agent. `stdin_of_first` as given by AgentLink.
int run_agent(int stdin_of_first);

/// The hidden first arguments that make hvdrun an agent.
inline constexpr std::string_view kAgentArgument = "--agent";

}  // namespace hvd::launcher
