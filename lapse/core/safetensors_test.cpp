#include "lapse/core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

using namespace std::string_literals;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

using Tensors = std::map<std::string, TensorEntry>;
using Metadata = std::map<std::string, std::string>;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override { std::memcpy(floats_.data(), values_, sizeof values_); }

  Tensors example() const {
    return {{"weight", {"F32", {2, 3}, floats_}},
            {"mask", {"BOOL", {3}, std::string_view("\1\0\1", 3)}},
            {"double", {"F64", {1}, std::string_view(floats_).substr(0, 8)}},
            {"empty", {"I64", {0, 4}, {}}},
            {"scalar", {"BF16", {}, std::string_view(floats_).substr(2, 2)}}};
  }

  // Neither write_file nor over the old file: thousands of altered files would all be flushed to disk.
  void put(const std::string& bytes) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  std::string error_for_bytes(const std::string& bytes) {
    put(bytes);
    return error_of([&] { SafetensorsFile file(path_); });
  }

  TestFolder folder_;
  fs::path path_ = folder_ / "model.safetensors";
  const float values_[6] = {1, -2, 3.5, 4, 5, 6};
  std::string floats_ = std::string(sizeof values_, '\0');
};

TEST_F(Safetensors, RoundTrip) {
  const Metadata metadata = {{"config", "[model]\nname = \"é\"\n"}, {"", ""}};
  write_safetensors(path_, example(), metadata);
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const auto& [name, tensor] : example()) {
    EXPECT_EQ(file.tensor(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(file.tensor(name).shape, tensor.shape) << name;
    EXPECT_EQ(file.tensor(name).bytes, tensor.bytes) << name;
  }
}

TEST_F(Safetensors, RoundTripOfNothing) {
  write_safetensors(path_, {}, {});
  const SafetensorsFile file(path_);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(Safetensors, WhatWasReadCanBeWrittenAgain) {
  write_safetensors(path_, example(), {{"a", "b"}});
  const std::string first = read_file(path_);
  const SafetensorsFile file(path_);
  write_safetensors(path_, file.tensors(), file.metadata());
  EXPECT_EQ(read_file(path_), first);
}

TEST_F(Safetensors, EveryTensorIsAligned) {
  for (size_t padding = 0; padding < 8; ++padding) {
    write_safetensors(path_, example(), {{"padding", std::string(padding, 'x')}});
    const SafetensorsFile file(path_);
    const char* first = file.tensor("double").bytes.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 8, 0u);
    for (const auto& [name, tensor] : file.tensors())
      EXPECT_EQ((tensor.bytes.data() - first) % dtype_size(tensor.dtype), 0u) << name;
  }
}

TEST_F(Safetensors, MissingNamesAreErrorsWithTheNearest) {
  write_safetensors(path_, example(), {{"config", ""}});
  const SafetensorsFile file(path_);
  EXPECT_THAT(error_of([&] { file.tensor("wieght"); }),
              AllOf(StartsWith(path_.string()), HasSubstr("no tensor 'wieght' (did you mean 'weight'?)")));
  EXPECT_THAT(error_of([&] { file.meta("cofnig"); }), HasSubstr("no metadata 'cofnig' (did you mean 'config'?)"));
}

TEST_F(Safetensors, MissingFileIsAnError) {
  EXPECT_THAT(error_of([&] { SafetensorsFile file(path_); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { SafetensorsFile file(folder_.path()); }), HasSubstr("Is a directory"));
}

TEST_F(Safetensors, ChecksumIsThatOfTheFileWithZerosInItsPlace) {
  write_safetensors(path_, example(), {});
  std::string bytes = read_file(path_);
  const size_t place = bytes.find("lapse.checksum\":\"") + 17;
  const std::string stored = bytes.substr(place, 8);
  bytes.replace(place, 8, "00000000");
  EXPECT_EQ(std::stoul(stored, nullptr, 16),
            crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

TEST_F(Safetensors, NoBitCanChangeUnnoticed) {
  write_safetensors(path_, example(), {{"step", "100"}, {"padding", "1234"}});
  const std::string whole = read_file(path_);
  ASSERT_NE(whole.find("} "), whole.npos) << "padding is to be tested too";
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string altered = whole;
      altered[i] = static_cast<char>(altered[i] ^ (1 << bit));
      EXPECT_THAT(error_for_bytes(altered), EndsWith("(truncated or altered file)")) << "byte " << i << " bit " << bit;
    }
  }
}

TEST_F(Safetensors, EveryTruncationAndAdditionIsAnError) {
  write_safetensors(path_, example(), {{"step", "100"}});
  const std::string whole = read_file(path_);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(error_for_bytes(whole.substr(0, size)), EndsWith("(truncated or altered file)")) << size;
  EXPECT_THAT(error_for_bytes(whole + '\0'), HasSubstr("bytes follow the last tensor"));
}

// Without a checksum an alteration may pass, but whatever loads must be consistent.
TEST_F(Safetensors, ImpossibleTensorsAreNotWritten) {
  const std::pair<Tensors, const char*> cases[] = {
      {{{"a", {"F32", {3}, std::string_view("1234")}}}, "tensor 'a' has 4 bytes"},
      {{{"a", {"F31", {1}, std::string_view("1234")}}}, "unknown dtype 'F31'"},
      {{{"a", {"U8", {-2, -2}, std::string_view("1234")}}}, "negative"},
      {{{"a", {"U8", std::vector<int64_t>(65, 1), std::string_view("1")}}}, "more than 64 dimensions"},
      {{{"__metadata__", {"U8", {4}, std::string_view("1234")}}}, "cannot be named '__metadata__'"},
      {{{"\xff", {"U8", {4}, std::string_view("1234")}}}, "UTF-8"}};
  for (const auto& [tensors, message] : cases)
    EXPECT_THAT(error_of([&, &tensors = tensors] { write_safetensors(path_, tensors, {}); }),
                AllOf(StartsWith("cannot write '" + path_.string()), HasSubstr(message)));
  EXPECT_THAT(error_of([&] { write_safetensors(path_, {}, {{"k", "\xff"}}); }), HasSubstr("UTF-8"));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(Safetensors, NamesMayHoldAnyText) {
  const std::string name = "a\"b\\c\n\0é:\"lapse.checksum\":\"\x01"s;
  write_safetensors(path_, {{name, {"U8", {1}, std::string_view("1")}}}, {{"lapse.checksum", "mine"}, {name, name}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensor(name).bytes, "1");
  EXPECT_EQ(file.metadata(), (Metadata{{name, name}}));
}

TEST_F(Safetensors, DtypeSizes) {
  EXPECT_EQ(dtype_size("BOOL"), 1u);
  EXPECT_EQ(dtype_size("BF16"), 2u);
  EXPECT_EQ(dtype_size("F32"), 4u);
  EXPECT_EQ(dtype_size("I64"), 8u);
  EXPECT_EQ(error_of([] { dtype_size("f32"); }), "unknown dtype 'f32' (did you mean 'F32'?)");
}

}  // namespace
}  // namespace lapse
