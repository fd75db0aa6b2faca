// mpi_bench [-b SIZE] [-e SIZE] [-f FACTOR] … measures MPI_Allreduce under mpirun, in place, by the
// rules of hvd_bench. The exit status is 0, 1 when a result was wrong or the file cannot be
// written, or 64 for a wrong command line.
#include <cstdio>
#include <exception>
#include <string>

#include <mpi.h>

#include "driver/driver.hpp"

namespace {

using hvd::peers::Combine;

constexpr int kUsage = 64;

/// MPI's default error handler ends the job.
class Mpi final : public hvd::peers::Library {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  [[nodiscard]] std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    std::string all(text);
    for (char& c : all) c = c == '\t' ? ' ' : c;
    return all.substr(0, all.find_first_of(",\n"));
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  void allreduce(float* data, std::size_t count, const std::string&) override {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void combine(std::span<double> values, Combine how) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                  how == Combine::sum ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

int measured(const hvd::peers::Options& options) {
  try {
    Mpi mpi;
    return hvd::peers::run(mpi, options) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_bench: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  hvd::peers::Options options;
  CLI::App app("Measures MPI_Allreduce over a range of sizes. Start it with mpirun.", "mpi_bench");
  hvd::peers::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  MPI_Init(&argc, &argv);
  const int status = measured(options);
  MPI_Finalize();
  return status;
}
