// gloo_bench --rank R --ranks N --store FOLDER --interface IF [-b SIZE] … measures Gloo's allreduce
// over TCP, in place, by the rules of hvd_bench. Each rank is one process. The folder is empty at
// first and the same for all ranks. The exit status is 0, 1 when a result was wrong or something
// failed, or 64 for a wrong command line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "driver/driver.hpp"

namespace {

using hvd::peers::Combine;

constexpr int kUsage = 64;
constexpr std::chrono::seconds kPatience{120};

struct Place {
  int rank = 0;
  int ranks = 1;
  std::string store;
  std::string interface = "lo";
};

class Gloo final : public hvd::peers::Library {
 public:
  explicit Gloo(const Place& place) : place_(place) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = place.interface;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.ranks);
    context->setTimeout(kPatience);
    gloo::rendezvous::FileStore store(place.store);
    context->connectFullMesh(store, device);
    context_ = context;
  }
  [[nodiscard]] std::string name() const override { return "Gloo"; }
  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int ranks() const override { return place_.ranks; }
  [[nodiscard]] std::vector<std::string> ways(std::size_t) const override {
    return {"ring", "bcube"};
  }
  void allreduce(float* data, std::size_t count, const std::string& way) override {
    const bool ring = way == "ring";
    reduce(
        data, count, &gloo::sum<float>,
        ring ? gloo::AllreduceOptions::Algorithm::RING : gloo::AllreduceOptions::Algorithm::BCUBE);
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    options.setTimeout(kPatience);
    gloo::barrier(options);
  }
  void combine(std::span<double> values, Combine how) override {
    const Reduction add = &gloo::sum<double>;
    const Reduction larger = &gloo::max<double>;
    reduce(values.data(), values.size(), how == Combine::sum ? add : larger,
           gloo::AllreduceOptions::Algorithm::RING);
  }

 private:
  using Reduction = void (*)(void*, const void*, const void*, std::size_t);

  template <class T>
  void reduce(T* data, std::size_t count, Reduction reduction,
              gloo::AllreduceOptions::Algorithm algorithm) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm);
    options.setOutput(data, count);
    options.setReduceFunction(reduction);
    options.setTimeout(kPatience);
    gloo::allreduce(options);
  }

  Place place_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int argc, char** argv) {
  Place place;
  hvd::peers::Options options;
  CLI::App app("Measures Gloo's allreduce over a range of sizes.", "gloo_bench");
  app.add_option("--rank", place.rank)->required();
  app.add_option("--ranks", place.ranks)->required();
  app.add_option("--store", place.store, "folder in which the ranks meet")->required();
  app.add_option("--interface", place.interface, "network interface");
  hvd::peers::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  try {
    Gloo gloo(place);
    const bool right = hvd::peers::run(gloo, options);
    gloo.barrier();  // no rank closes connections that others still use
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo_bench: %s\n", error.what());
    return 1;
  }
}
