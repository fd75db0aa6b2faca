// Holds hvdrun's end of the link to one agent, which consists of the stream of frames and the
// process of the agent or of the ssh client that leads to it.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/types.h>

#include <hvd/core/types.hpp>

#include "transport/agent_command.hpp"
#include "transport/agent_loss.hpp"
#include "transport/agent_stream.hpp"
#include "transport/heartbeat.hpp"

namespace hvd::launcher {

class AgentLink {
 public:
  struct Handlers {
    std::function<void()> on_ready;  ///< an agent of this version has greeted: frames may be sent
    std::function<void(Frame)> on_frame;
    std::function<void()> on_flushed;            ///< the system has taken all frames that were sent
    std::function<void(std::string)> on_stderr;  ///< what ssh or a remote agent wrote to stderr
    /// Called once, when the agent has ended although hvdrun did not ask for it.
    std::function<void(AgentLoss)> on_lost;
  };

  /// Starts the agent. Throws LaunchError (71).
  AgentLink(boost::asio::io_context& io, const AgentCommand& command);
  /// Takes the `stream` to an agent that another program has started; `via` is as in AgentLoss.
  AgentLink(boost::asio::io_context& io, UniqueFd stream, std::string via);
  /// Does what `close` does, and waits for the agent, at most until 3 s after `close`.
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  /// `host_timeout` is how long an agent beyond a network may be silent. 0 means for ever; then
  /// only the end of its stream shows that it is lost.
  void start(std::chrono::milliseconds host_timeout, Handlers handlers);
  void send(const Frame& frame);
  /// Returns whether nothing that was sent waits in this process.
  [[nodiscard]] bool flushed() const noexcept { return stream_->flushed(); }
  /// Returns whether the agent will not take the silence of this process for a failure: the system
  /// has taken all frames, and the last was `Suspend`.
  [[nodiscard]] bool excused() const noexcept { return last_is_suspend_ && flushed(); }
  /// Closes the stream, which ends the agent and all that descends from it. No handler is called
  /// afterwards; a handler may call this. An agent that does not end is killed, unless the event
  /// loop stops before.
  void close();
  /// Returns whether this object has been closed and no longer waits for the process that it
  /// started. The event loop may still have handlers queued that use it; see `destroy_later`.
  [[nodiscard]] bool ended() const noexcept { return closed_ && pid_ < 0; }
  /// Destroys a link that has ended, and that has started its agent, after all handlers of
  /// `io` that use the link.
  static void destroy_later(boost::asio::io_context& io, std::unique_ptr<AgentLink> ended);

 private:
  void on_greeting(const std::string& version);
  void start_heartbeat();
  void on_stream_end(const std::string& why);
  void read_stderr();
  void take_stderr(std::string_view text);
  void drain_stderr();
  void watch();
  void stop_waiting();
  void lose();
  void kill_process() const;
  void reap_group() const;

  pid_t pid_ = -1;    ///< of the process that was started, until it is waited for
  pid_t group_ = -1;  ///< the process group of that process, afterwards
  AgentLoss loss_;
  Handlers handlers_;
  std::optional<boost::asio::posix::stream_descriptor> process_;
  std::optional<boost::asio::posix::stream_descriptor> stderr_;
  std::array<char, 4096> buffer_{};
  std::string said_;  ///< the last bytes that arrived on `stderr_`
  std::optional<AgentStream> stream_;
  LinkHeartbeat heartbeat_;
  std::chrono::milliseconds silence_limit_{0};
  bool last_is_suspend_ = false;  ///< the last frame that was sent
  boost::asio::steady_timer end_timer_;
  std::optional<Deadline> closed_;  ///< set by `close`: until when to wait for the process
};

}  // namespace hvd::launcher
