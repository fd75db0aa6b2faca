#include <iostream>

#include <hvd/estimator/parquet_source.hpp>

int main(int, char** argv) {
  const auto store = hvd::EstimatorStore::open(argv[1]);
  const std::string table = store.uri_of(store.train_data("1") + "/part.parquet");
  hvd::write_parquet(table, {"x", "label"}, {torch::rand({10, 3}), torch::arange(10)});
  const auto source = hvd::ParquetSource::open(table);
  source.require({.features = {"x"}, .labels = {"label"}});
  std::cout << source.rows() << " rows of " << source.schema()[0].type << std::endl;
}
