#include <hvd/estimator/estimator.hpp>
#include <hvd/hvd.hpp>

#include "checked_options.hpp"
#include "runner.hpp"
#include "training.hpp"

namespace hvd {

namespace {

/// The default context, for one fit.
class Joined {
 public:
  explicit Joined(const Config& config) { init(config); }
  /// After an error nobody asks what leaving says.
  ~Joined() {
    try {
      shutdown();
    } catch (const Error&) {
    }
  }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
};

}  // namespace

Estimator::Estimator(EstimatorOptions options) : options_(std::move(options)) {
  check_options(options_);
}

Model Estimator::fit(const ParquetSource& train, SpawnSite site) const {
  return fit_somewhere(train, nullptr, site);
}

Model Estimator::fit(const ParquetSource& train, const ParquetSource& validation,
                     SpawnSite site) const {
  if (options_.validation.fraction > 0 || !options_.validation.column.empty()) {
    throw Error(Errc::invalid_argument,
                "validation: it is given, and so is a source to validate with");
  }
  return fit_somewhere(train, &validation, site);
}

Model Estimator::fit_somewhere(const ParquetSource& train, const ParquetSource* validation,
                               SpawnSite site) const {
  const auto run = [&](Context& context) {
    return Training(options_, context, train, validation).run();
  };
  const auto join_and_run = [&](const Config& config) {
    const Joined joined(config);
    return run(context());
  };
  if (options_.context != nullptr) return run(*options_.context);
  if (is_initialized()) return run(context());
  // A process that was started for such a call is no rank before it has come there.
  const bool on_the_way = spawn_is_ahead();
  const Config config = on_the_way ? Config{} : Config::from_environment();
  if (!config.place_from.empty()) return join_and_run(config);
  if (options_.num_proc <= 1) return join_and_run(config);

  require_slots(options_.num_proc, options_.runner);
  const auto train_as_rank = [&](int rank) {
    const Model model = join_and_run(Config::from_environment());
    return rank == 0 ? pack(model) : Bytes();
  };
  const std::vector<Bytes> results =
      spawn(train_as_rank, options_.num_proc,
            on_the_way ? SpawnOptions{} : spawn_options(options_.runner), site);
  return unpack(results.at(0), options_.model);
}

}  // namespace hvd
