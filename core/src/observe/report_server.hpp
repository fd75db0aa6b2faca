// Answers the launcher's question how this rank goes, on the socket that the rank inherited.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/rank_report.hpp>

namespace hvd::observe {

/// On the loop thread: every datagram of one byte is answered with one report; besides, only the
/// notes are sent. A reader that does not read costs nothing: what does not fit is dropped.
class ReportServer {
 public:
  /// Null when `fd` is no packet socket between processes of this user: a wrapper script may have
  /// closed what the launcher gave, and something else may have its number by now. Duplicates `fd`.
  /// `report` is called on the loop thread and must not block; `loop` outlives the server.
  [[nodiscard]] static std::unique_ptr<ReportServer> on(EventLoop& loop, int fd,
                                                        std::function<RankReport()> report);
  /// Tells the launcher. `ended` says it once, however often it is called.
  void joined();
  void ended();
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
