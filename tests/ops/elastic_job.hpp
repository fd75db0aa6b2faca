// Plays hvdrun's part towards real workers of an elastic job.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <hvd_test/process.hpp>

#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/store_server.hpp>

namespace hvd::test {

/// Does only what the test says. Every wait throws std::runtime_error after a minute.
class ElasticJob {
 public:
  /// Workers run `program` with `arguments` and add `environment` to that of this process.
  ElasticJob(std::string program, std::vector<std::string> arguments,
             std::map<std::string, std::optional<std::string>> environment = {});

  /// Starts `count` workers, which are numbered from 0 over all calls.
  void start(int count);
  /// Returns the next message of the worker.
  [[nodiscard]] detail::Waits waits(int worker);
  /// Waits for the next message of each worker, which must blame nobody.
  void all_wait(const std::vector<int>& workers);
  /// Makes the next generation of `workers`, in the order of their ranks, and returns its number.
  std::uint32_t form(const std::vector<int>& workers);
  void send(int worker, const detail::ElasticOrder& order) const;
  void send(const std::vector<int>& workers, const detail::ElasticOrder& order) const;
  /// Closes hvdrun's end of the worker's socket.
  void hang_up(int worker) { sockets_.at(worker).reset(); }

  [[nodiscard]] Process& process(int worker) { return *processes_.at(worker); }
  /// Waits for the end of the worker's process.
  [[nodiscard]] ProcessResult end(int worker);
  /// Kills the worker and waits for its end.
  void kill(int worker);

 private:
  std::string program_;
  std::vector<std::string> arguments_;
  std::map<std::string, std::optional<std::string>> environment_;
  std::uint32_t generation_ = 0;
  EventLoop loop_;
  std::unique_ptr<StoreServer> store_;
  std::map<int, UniqueFd> sockets_;
  std::map<int, std::unique_ptr<Process>> processes_;
};

}  // namespace hvd::test
