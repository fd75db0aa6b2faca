// Serves the status of a running job to other shells of the same user, over an abstract Unix
// socket, which leaves no file behind however hvdrun ends. Both sides check the uid of the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace hvd::launcher {

class StatusServer {
 public:
  static constexpr std::size_t kMaxClients = 8;

  /// Called when a shell asks. The function must pass the text to `answer`, once, within 2 s.
  using OnAsked = std::function<void(std::function<void(std::string)> answer)>;

  /// When the socket cannot be made, no shell is served, since a job must not fail for that.
  StatusServer(boost::asio::io_context& io, const std::string& job_id, OnAsked on_asked);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Returns the jobs of this user whose hvdrun runs here, from /proc/net/unix.
[[nodiscard]] std::vector<std::string> jobs_with_status();
/// Finds the jobs of `user` in the text of that file.
[[nodiscard]] std::vector<std::string> parse_jobs(const std::string& sockets, unsigned user);

/// Implements `hvdrun status [JOB]`: asks the hvdrun of the job or, without a JOB, of the only job.
/// Blocks for at most 5 s. Throws LaunchError: 69 when there is no such job or no answer, 64 naming
/// the jobs when there are several, 77 when another user has taken the job's name.
[[nodiscard]] std::string ask_status(const std::string& job_id);

}  // namespace hvd::launcher
