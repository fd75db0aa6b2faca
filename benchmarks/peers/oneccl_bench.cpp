// oneccl_bench --rank R --ranks N --store FOLDER [-b SIZE] … measures oneCCL's allreduce of host
// memory, in place, by the rules of hvd_bench. Each rank is one process. The folder is empty at
// first and the same for all ranks. The exit status is 0, 1 when a result was wrong or something
// failed, or 64 for a wrong command line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include <oneapi/ccl.hpp>

#include "driver/driver.hpp"

namespace {

using hvd::peers::Combine;

constexpr int kUsage = 64;
constexpr std::chrono::seconds kPatience{120};
constexpr std::chrono::milliseconds kNap{1};

struct Place {
  int rank = 0;
  int ranks = 1;
  std::filesystem::path store;
};

/// Creates the key-value store of the ranks. Rank 0 writes its address to a file.
ccl::shared_ptr_class<ccl::kvs> meet(const Place& place) {
  const std::filesystem::path file = place.store / "oneccl";
  if (place.rank == 0) {
    auto kvs = ccl::create_main_kvs();
    const ccl::kvs::address_type address = kvs->get_address();
    const std::filesystem::path half = place.store / "half";
    std::ofstream out(half, std::ios::binary);
    out.write(address.data(), static_cast<std::streamsize>(address.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + half.string());
    std::filesystem::rename(half, file);  // the file appears complete or not at all
    return kvs;
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!std::filesystem::exists(file)) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no rank 0");
    std::this_thread::sleep_for(kNap);
  }
  ccl::kvs::address_type address{};
  std::ifstream in(file, std::ios::binary);
  in.read(address.data(), static_cast<std::streamsize>(address.size()));
  if (!in) throw std::runtime_error("cannot read " + file.string());
  return ccl::create_kvs(address);
}

class OneCcl final : public hvd::peers::Library {
 public:
  explicit OneCcl(const Place& place)
      : rank_(place.rank),
        ranks_(place.ranks),
        comm_(ccl::create_communicator(place.ranks, place.rank, meet(place))) {}
  [[nodiscard]] std::string name() const override {
    const ccl::library_version version = ccl::get_library_version();
    return "oneCCL " + std::to_string(version.major) + '.' + std::to_string(version.minor) + '.' +
           std::to_string(version.update);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int ranks() const override { return ranks_; }
  void allreduce(float* data, std::size_t count, const std::string&) override {
    ccl::allreduce(data, data, count, ccl::reduction::sum, comm_).wait();
  }
  void barrier() override { ccl::barrier(comm_); }
  void combine(std::span<double> values, Combine how) override {
    ccl::allreduce(values.data(), values.data(), values.size(),
                   how == Combine::sum ? ccl::reduction::sum : ccl::reduction::max, comm_)
        .wait();
  }

 private:
  int rank_;
  int ranks_;
  ccl::communicator comm_;
};

}  // namespace

int main(int argc, char** argv) {
  Place place;
  hvd::peers::Options options;
  CLI::App app("Measures oneCCL's allreduce over a range of sizes.", "oneccl_bench");
  app.add_option("--rank", place.rank)->required();
  app.add_option("--ranks", place.ranks)->required();
  app.add_option("--store", place.store, "folder in which the ranks meet")->required();
  hvd::peers::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    ccl::init();
    OneCcl library(place);
    const bool right = hvd::peers::run(library, options);
    library.barrier();  // no rank closes connections that others still use
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "oneccl_bench: %s\n", error.what());
    return 1;
  }
}
