// The program that the Spark tests run: "spark_rank WHAT [arguments]".
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <hvd/hvd.hpp>
#include <hvd/spark.hpp>

namespace {

using Arguments = std::vector<std::string>;

constexpr int kLost = 3;

/// Prints a line with the rank's place, by its environment and by what the ranks found out. Returns
/// a sum over the ranks as the result.
int place(const Arguments& arguments) {
  hvd::init();
  const char* const gpus = std::getenv("CUDA_VISIBLE_DEVICES");
  const char* const name = std::getenv("OF_THE_JOB");
  std::string words;
  for (const std::string& word : arguments) words += "(" + word + ")";
  std::printf("rank %d of %d local %d/%s of %d gpus '%s' variable '%s' arguments %s\n", hvd::rank(),
              hvd::size(), hvd::local_rank(), std::getenv("HVD_LOCAL_RANK"), hvd::local_size(),
              gpus == nullptr ? "none" : gpus, name == nullptr ? "" : name, words.c_str());
  std::vector<float> data(1000, static_cast<float>(hvd::rank() + 1));
  hvd::allreduce(std::span(data), {.name = "data", .op = hvd::ReduceOp::sum});
  const std::string sum = std::to_string(static_cast<int>(data.front()));
  hvd::shutdown();
  hvd::set_result("{\"sum\": " + sum + ", \"text\": \"\\u00e4\"}");
  return 0;
}

/// Returns the bytes 0, 1, …, 255, 0, … as the result, as many as it is asked for.
int bytes(const Arguments& arguments) {
  std::vector<std::byte> data(std::stoul(arguments.at(0)));
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::byte{static_cast<unsigned char>(i)};
  const bool asked = hvd::set_result(std::as_bytes(std::span(data)));
  std::printf("asked %d\n", asked ? 1 : 0);
  return 0;
}

int text(const Arguments& arguments) {
  hvd::set_result(std::string_view(arguments.at(0)));
  return 0;
}

/// Sums on all ranks until one of them, which exits with a code or kills itself, is lost.
int fail(const Arguments& arguments) {
  const int rank = std::stoi(arguments.at(0));
  const int code = std::stoi(arguments.at(1));
  hvd::init();
  std::vector<float> data(10, 1);
  const auto sum = [&] {
    hvd::allreduce(std::span(data), {.name = "data", .op = hvd::ReduceOp::sum});
  };
  sum();
  if (hvd::rank() == rank) {
    for (int line = 0; line < 150; ++line) std::fprintf(stderr, "line %d\n", line);
    std::fprintf(stderr, "this is why");  // no end of line
    if (code < 0) ::raise(-code);
    std::_Exit(code);
  }
  while (true) sum();
}

/// Prints its pid and that of a child in another session, and waits until it is ended.
int wait(const Arguments&) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    while (true) ::pause();
  }
  std::printf("waiting %d %d\n", static_cast<int>(::getpid()), static_cast<int>(child));
  std::fflush(stdout);
  while (true) ::pause();
}

int flood(const Arguments& arguments) {
  const int lines = std::stoi(arguments.at(0));
  for (int line = 0; line < lines; ++line) std::printf("%d of %d\n", line, lines);
  return 0;
}

/// Copies the files with the rank's rows to a folder, and prints the number of rows.
int rows(const Arguments& arguments) {
  const auto partition = hvd::ArrowPartition::of_this_rank();
  if (!partition) {
    std::printf("no partition\n");
    return 0;
  }
  const std::filesystem::path folder = arguments.at(0);
  for (const hvd::ArrowFile& file : partition->files) {
    std::filesystem::copy_file(file.path,
                               folder / (std::string(std::getenv("HVD_RANK")) + ".arrow"));
  }
  std::printf("rows %lld\n", static_cast<long long>(partition->rows()));
  return 0;
}

int run(const std::string& what, const Arguments& arguments) {
  if (what == "place") return place(arguments);
  if (what == "bytes") return bytes(arguments);
  if (what == "text") return text(arguments);
  if (what == "fail") return fail(arguments);
  if (what == "wait") return wait(arguments);
  if (what == "flood") return flood(arguments);
  if (what == "rows") return rows(arguments);
  std::fprintf(stderr, "spark_rank: what is '%s'?\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    return run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kLost;
  }
}
