#include "file_system.hpp"

namespace hvd {

std::shared_ptr<arrow::fs::FileSystem> open_hdfs(const std::string& uri, const StorageOptions&,
                                                 std::string&) {
  refuse_scheme(uri, "HDFS");
}

}  // namespace hvd
