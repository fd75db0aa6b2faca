// Distributes the output of all ranks to hvdrun's stdout and stderr, to files, and to the last
// lines that the report quotes. Limits the memory that a slow reader costs.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "job/file_writer.hpp"
#include "job/sink.hpp"
#include "supervise/rank_output.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// Implements --output-filename, with a file per process and stream that holds the unchanged
/// output.
class OutputFiles {
 public:
  struct Options {
    std::string directory;
    std::string process = "rank";  ///< the files of process 2 are in `directory`/rank.2
    bool append = false;           ///< existing files are not emptied
  };
  /// `writer` outlives this object; `on_error` is called as in FileWriter, once for each file.
  OutputFiles(Options options, FileWriter& writer, FileWriter::OnError on_error);

  /// Creates the process's files "stdout" and "stderr" before it returns. Throws LaunchError (71)
  /// if that is impossible.
  void create(int process);
  /// Queues the bytes. If the files are not open, the writer's thread opens them first and reports
  /// an error to `on_error`. Throws as `FileWriter::write` does.
  void write(int process, Stream stream, std::string_view bytes);
  /// Closes the files. What is written later is appended.
  void close(int process);

 private:
  struct Files {
    std::array<std::size_t, 2> numbers{};  ///< the writer's, by stream
    bool open = false;
    bool opened_before = false;
  };
  Files& files_of(int process);
  [[nodiscard]] std::string path(int process, std::size_t stream) const;

  Options options_;
  FileWriter& writer_;
  FileWriter::OnError on_error_;
  std::vector<Files> files_;  ///< by process
};

class OutputHub {
 public:
  struct Options {
    int ranks = 1;
    LineMux::Options lines;
    OutputFiles::Options files{};  ///< with an empty directory, there are none
    std::size_t tail_lines = Tail::kLines;
  };
  /// Called when there is room for more output, so that agents may get more credit.
  using OnRoom = std::function<void()>;
  /// Called when opening or writing to `target` ("stdout", "stderr", or the directory in quotes)
  /// has failed. From then on, output to it is dropped.
  using OnError = std::function<void(const std::string& target, std::error_code)>;

  /// Throws LaunchError when a file cannot be created.
  OutputHub(boost::asio::io_context& io, Options options);
  void start(OnRoom on_room, OnError on_error);

  /// Queues the bytes for the stream, the file and the tail. Throws LaunchError (71), as
  /// `FileWriter::write` does.
  void add(const Output& output);
  /// The process has ended: its unfinished lines are written and its files are closed, now and
  /// after each piece of its output that still follows.
  void ended(int process);
  /// Writes the unfinished lines of all ranks, and closes their files.
  void finish();
  /// Writes whole lines to stderr, which are hvdrun's own.
  void say(std::string_view lines);
  /// Returns whether nothing waits for the reader of stderr; a file has none.
  [[nodiscard]] bool said() const noexcept { return err_.sink.queued() == 0; }

  [[nodiscard]] std::deque<Tail::Line> tail(int rank) const;
  /// Returns whether readers and file systems are keeping up.
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool flushed() const noexcept;

 private:
  /// While a queue holds this many bytes, agents get no more credit.
  static constexpr std::size_t kRoom = std::size_t{256} << 10;

  struct Channel {
    Channel(boost::asio::io_context& io, Stream stream, const Options& options, FileWriter& writer);
    LineMux lines;
    Sink sink;
  };
  [[nodiscard]] Channel& channel(Stream stream) { return stream == Stream::out ? out_ : err_; }

  OnError on_error_;
  FileWriter writer_;
  Channel out_;
  Channel err_;
  std::optional<OutputFiles> files_;
  std::vector<Tail> tails_;  ///< by rank
  std::vector<bool> ended_;  ///< by rank, as far as one has ended
};

}  // namespace hvd::launcher
