// Trains a model on data that lies in Parquet files.
#pragma once

#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>
#include <hvd/spawn.hpp>

namespace hvd {

/// docs/estimator.md. Checked at construction: Errc::invalid_argument names the parameter and its
/// value, before anything has started.
class Estimator {
 public:
  explicit Estimator(EstimatorOptions options);

  /// Inside a job (`hvd::init` was called, or a launcher gave this process a place) collective: all
  /// ranks call it with the same options and data, and each gets the model. Outside of one it
  /// trains alone, or runs `num_proc` processes of this program as `hvd::spawn` does
  /// (docs/spawn.md): they come to this call again, and only the first process returns from it.
  ///
  /// Throws Errc::invalid_argument: data without rows or columns that do not fit, a run that is not
  /// there or was begun with other parameters, `num_proc`; Errc::protocol: a damaged checkpoint or
  /// data file, by name; Errc::resource: a store that cannot be written or read; Errc::mismatch:
  /// ranks with different options; hvd::ProcessError: a process that it started failed; and what
  /// collectives throw. What one rank throws while it trains ends the job's context, so that the
  /// others do not wait. What was saved before stays.
  Model fit(const ParquetSource& train, SpawnSite site = SpawnSite::here()) const;
  /// With rows of another source to validate with; `options.validation` must be empty.
  Model fit(const ParquetSource& train, const ParquetSource& validation,
            SpawnSite site = SpawnSite::here()) const;

  [[nodiscard]] const EstimatorOptions& options() const noexcept { return options_; }

 private:
  [[nodiscard]] Model fit_somewhere(const ParquetSource& train, const ParquetSource* validation,
                                    SpawnSite site) const;

  EstimatorOptions options_;
};

}  // namespace hvd
