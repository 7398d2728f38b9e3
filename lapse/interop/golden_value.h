// Values of a golden file's metadata: strings, with Python's True and False.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lapse {

using GoldenMetadata = std::map<std::string, std::string>;

/// Error if the key is missing.
const std::string& golden_text(const GoldenMetadata& metadata, const std::string& key);

/// T: int64_t, double or bool. Error if the key is missing or its value is not of that type.
template <class T>
T golden_value(const GoldenMetadata& metadata, const std::string& key);

/// A list of integers, such as [24, 16].
std::vector<int64_t> golden_list(const GoldenMetadata& metadata, const std::string& key);

}  // namespace lapse
