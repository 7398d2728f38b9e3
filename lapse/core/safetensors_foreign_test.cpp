#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "lapse/core/safetensors.h"
#include "lapse/core/testing.h"

// Files of other writers: sound, damaged or meant to do harm.

namespace lapse {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string with_size(const std::string& header, const std::string& data, uint64_t size) {
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

class ForeignSafetensors : public testing::Test {
 protected:
  std::string error_for_bytes(const std::string& bytes) {
    put(bytes);
    return error_of([&] { SafetensorsFile file(path_); });
  }
  std::string error_for(const std::string& header, const std::string& data = "") {
    return error_for_bytes(with_size(header, data, header.size()));
  }
  // Neither write_file nor over the old file: thousands of altered files would all be flushed to disk.
  void put(const std::string& bytes) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  TestFolder folder_;
  fs::path path_ = folder_ / "model.safetensors";
};

TEST_F(ForeignSafetensors, ReadsFilesOfOtherWriters) {
  const std::string entry = R"("a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(error_for("{" + entry + "}", "12345678"), "");
  EXPECT_EQ(error_for("{ \"__metadata__\" : {\"format\" : \"pt\"},\n " + entry + "}   ", "12345678"), "");
  EXPECT_EQ(SafetensorsFile(path_).meta("format"), "pt");
  EXPECT_EQ(SafetensorsFile(path_).tensor("a").bytes, "12345678");
  EXPECT_EQ(error_for("{}"), "");
}

TEST_F(ForeignSafetensors, AlteredFilesWithoutChecksumNeverCrash) {
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"I16","shape":[2,1],"data_offsets":[0,4]}})";
  const std::string whole = with_size(header, "1234", header.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int byte = 0; byte < 256; byte += 3) {
      std::string altered = whole;
      altered[i] = static_cast<char>(byte);
      put(altered);
      try {
        const SafetensorsFile file(path_);
        for (const auto& [name, tensor] : file.tensors()) EXPECT_EQ(tensor.bytes, altered.substr(altered.size() - 4));
      } catch (const Error&) {
      }
    }
  }
}

TEST_F(ForeignSafetensors, HeaderSizesThatLie) {
  for (uint64_t size :
       {uint64_t{3}, uint64_t{1000}, uint64_t{100'000'001}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}})
    EXPECT_THAT(error_for_bytes(with_size("{}", "", size)), EndsWith("(truncated or altered file)")) << size;
  EXPECT_THAT(error_for_bytes(with_size("{}", "", 100'000'001)),
              HasSubstr("is no safetensors file, as checkpoints are: it does not begin with the size of a header"));
  EXPECT_THAT(error_for_bytes(""), HasSubstr("shorter than"));
  EXPECT_THAT(error_for_bytes("1234567"), HasSubstr("shorter than"));
}

TEST_F(ForeignSafetensors, HeadersThatAreNotJson) {
  for (const std::string& header :
       {std::string(), std::string("{"), std::string("{}x"), std::string("{\"a\":}"), std::string("{\"\xff\":{}}"),
        std::string("{\"a\":1e999}"), std::string("{}\0", 3), std::string("// c\n{}")})
    EXPECT_THAT(error_for(header), HasSubstr("not valid JSON")) << header;
  for (const char* header : {"[]", "1", "null", "\"a\""})
    EXPECT_THAT(error_for(header), HasSubstr("not a JSON object")) << header;
}

TEST_F(ForeignSafetensors, DeepNestingIsRefusedEarly) {
  for (const std::string& part : {std::string("["), std::string("{\"a\":"), std::string("{\"a\":{\"shape\":[")}) {
    std::string header;
    for (int i = 0; i < 1'000'000; ++i) header += part;
    EXPECT_THAT(error_for(header), AnyOf(HasSubstr("not a JSON object"), HasSubstr("no valid"))) << part;
  }
}

TEST_F(ForeignSafetensors, ManyTensorsTakeNoMoreThanTheirShare) {
  std::string header = "{";
  for (int i = 0; i < 50'000; ++i)
    header += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  header.back() = '}';
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_for(header), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10)) << "a square of the number of tensors?";
}

TEST_F(ForeignSafetensors, DimensionsHaveALimit) {
  const auto shape_of = [](int dimensions) {
    std::string shape = "1";
    for (int i = 1; i < dimensions; ++i) shape += ",1";
    return R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})";
  };
  EXPECT_EQ(error_for(shape_of(64), "1"), "");
  EXPECT_THAT(error_for(shape_of(65), "1"), HasSubstr("no valid 'shape'"));
}

TEST_F(ForeignSafetensors, KeysGivenTwiceAreErrors) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(error_for("{" + entry + "," + entry + "}", "1"), HasSubstr("names 'a' twice"));
  EXPECT_THAT(error_for(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "1"),
              HasSubstr("names 'shape' twice"));
  EXPECT_THAT(error_for(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"),
              HasSubstr("names 'dtype' twice"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"k":"1","k":"2"}})"), HasSubstr("names 'k' twice"));
  EXPECT_THAT(error_for(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("names '__metadata__' twice"));
  EXPECT_EQ(error_for(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      "12"),
            "");
}

TEST_F(ForeignSafetensors, MalformedEntriesAreErrors) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(1)", "not described"},
      {R"({})", "not described"},
      {R"([])", "not described"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"note":"x"})", "no valid 'note'"},
      {R"({"dtype":"U8","shape":[4]})", "not described"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1})", "no valid 'more'"},
      {R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})", "no valid 'dtype'"},
      {R"({"dtype":"U9","shape":[4],"data_offsets":[0,4]})", "unknown dtype 'U9' (did you mean 'U8'?)"},
      {R"({"dtype":"u8","shape":[4],"data_offsets":[0,4]})", "unknown dtype 'u8'"},
      {R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":["4"],"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]})", "no valid 'shape'"},
      {R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "no memory holds"},
      {R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})", "no memory holds"},
      {R"({"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})", "no memory holds"},
      {R"({"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", "no memory holds"},
      {R"({"dtype":"U8","shape":[3],"data_offsets":[0,4]})", "contradict"},
      {R"({"dtype":"F32","shape":[4],"data_offsets":[0,4]})", "contradict"},
      {R"({"dtype":"U8","shape":[0],"data_offsets":[0,4]})", "contradict"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0]})", "two data_offsets"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[0,4,4]})", "two data_offsets"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})", "outside"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[1,5]})", "outside"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[18446744073709551615,3]})", "no valid 'data_offsets'"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[9223372036854775803,9223372036854775807]})", "outside"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})", "no valid 'data_offsets'"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":{"0":0,"1":4}})", "no valid 'data_offsets'"},
      {R"({"dtype":"U8","shape":[4],"data_offsets":null})", "no valid 'data_offsets'"}};
  for (const auto& [entry, message] : cases)
    EXPECT_THAT(error_for(std::string("{\"a\":") + entry + "}", "1234"),
                AllOf(StartsWith(path_.string()), HasSubstr(message), EndsWith("(truncated or altered file)")))
        << entry;
}

TEST_F(ForeignSafetensors, DataAreCoveredOnceAndWhole) {
  const auto two = [](int begin_a, int end_a, int begin_b, int end_b) {
    const auto entry = [](int begin, int end) {
      return "{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) + "],\"data_offsets\":[" +
             std::to_string(begin) + "," + std::to_string(end) + "]}";
    };
    return "{\"a\":" + entry(begin_a, end_a) + ",\"b\":" + entry(begin_b, end_b) + "}";
  };
  EXPECT_EQ(error_for(two(0, 2, 2, 4), "1234"), "");
  EXPECT_EQ(error_for(two(2, 4, 0, 2), "1234"), "");
  EXPECT_EQ(error_for(two(0, 4, 4, 4), "1234"), "");
  EXPECT_EQ(error_for(two(0, 0, 0, 4), "1234"), "");
  EXPECT_EQ(error_for(two(0, 0, 0, 0)), "");
  for (const std::string& header :
       {two(0, 3, 2, 4), two(0, 4, 0, 4), two(0, 1, 2, 4), two(1, 2, 2, 4), two(0, 4, 2, 2)})
    EXPECT_THAT(error_for(header, "1234"), HasSubstr("overlap or leave a gap")) << header;
  EXPECT_THAT(error_for(two(0, 1, 1, 3), "1234"), HasSubstr("bytes follow the last tensor"));
  EXPECT_THAT(error_for("{}", "1"), HasSubstr("bytes follow the last tensor"));
}

TEST_F(ForeignSafetensors, MalformedMetadataAreErrors) {
  EXPECT_THAT(error_for(R"({"__metadata__":[]})"), HasSubstr("metadata are not a JSON object"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"step":1}})"), HasSubstr("metadata 'step' is not a string"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"step":{}}})"), HasSubstr("metadata 'step' is not a string"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"step":null}})"), HasSubstr("metadata 'step' is not a string"));
}

TEST_F(ForeignSafetensors, MalformedChecksumsAreErrors) {
  for (const char* checksum : {"", "0", "000000000", "00000000", "zzzzzzzz"})
    EXPECT_THAT(error_for("{\"__metadata__\":{\"lapse.checksum\":\"" + std::string(checksum) + "\"}}"),
                HasSubstr("its checksum"))
        << checksum;
  EXPECT_THAT(error_for(R"({"__metadata__":{"lapse.checksum": "00000000"}})"), HasSubstr("checksum is malformed"));
  EXPECT_THAT(error_for(R"({"__metadata__":{"lapse.checksun":"00000000"}})"), HasSubstr("unknown key"));
}

}  // namespace
}  // namespace lapse
