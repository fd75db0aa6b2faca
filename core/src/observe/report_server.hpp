// Reports the state of this rank to the launcher, on the socket that the rank inherited.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/rank_report.hpp>

namespace hvd::observe {

/// Runs on the loop thread and answers every datagram of one byte with one report. Apart from that
/// it sends only the notes. While the launcher does not read, messages without room are dropped.
class ReportServer {
 public:
  /// Duplicates `fd`. Returns null when it is not the launcher's socket.
  /// `report` is called on the loop thread and must not block; `loop` outlives the server.
  [[nodiscard]] static std::unique_ptr<ReportServer> on(EventLoop& loop, int fd,
                                                        std::function<RankReport()> report);
  /// Sends a note to the launcher, with the fields of `RankNote`. Only the first call of `ended`
  /// sends one.
  void joined();
  void stops();
  void ended(int blames = -1, bool blamed_left = false);
  /// `report` is not called afterwards.
  ~ReportServer();
  ReportServer(const ReportServer&) = delete;
  ReportServer& operator=(const ReportServer&) = delete;

 private:
  struct Impl;
  ReportServer(EventLoop& loop, std::shared_ptr<Impl> impl);

  EventLoop& loop_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::observe
