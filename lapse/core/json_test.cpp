#include "lapse/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::HasSubstr;

TEST(Json, DepthIsBounded) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_EQ(error_of([&] { parse_json("{\"a\": " + deep + "}", "state.json"); }),
            "state.json: more than 64 levels of JSON");
  EXPECT_EQ(parse_json(std::string(60, '[') + std::string(60, ']'), "x").dump().size(), 120u);
}

TEST(Json, WhatIsNoneIsNamed) {
  for (const char* text : {"", "{", "[1,", "nul", "{\"a\": 1} 2", "{\"a\": \"\xff\"}"})
    EXPECT_EQ(error_of([&] { parse_json(text, "state.json"); }), "state.json: not valid JSON") << text;
}

TEST(Json, ObjectsGiveWhatIsAskedFor) {
  const Json json = parse_json(R"({"n": 3, "x": 0.5, "t": true, "l": [1], "o": {"n": -7}, "s": "é", "ss": ["a", ""],
                                   "os": [{"n": 1}, {"n": 2}]})",
                               "x");
  const JsonObject object(json, "x");
  EXPECT_EQ(object.whole("n", 0), 3);
  EXPECT_EQ(object.counter("n"), 3u);
  EXPECT_EQ(object.number("n"), 3.0);
  EXPECT_EQ(object.number("x"), 0.5);
  EXPECT_TRUE(object.truth("t"));
  EXPECT_EQ(object.list("l").size(), 1u);
  EXPECT_EQ(object.text("s"), "é");
  EXPECT_EQ(object.texts("ss"), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(object.objects("os").at(1).whole("n", 0), 2);
  EXPECT_EQ(object.object("o").whole("n", -7, -7), -7);
  EXPECT_TRUE(object.has("x"));
  EXPECT_FALSE(object.has("y"));
}

TEST(Json, ObjectsNameTheFieldThatIsWrong) {
  const Json json = parse_json(
      R"({"minus": -1, "part": 1.5, "text": "1", "none": null, "big": 18446744073709551615, "o": {"n": 7},
          "list": ["a", 1], "os": [{"n": 1}]})",
      "x");
  const JsonObject object(json, "run, its state");
  const auto whole = [&](const char* key) { return error_of([&] { object.whole(key, 0, 9); }); };
  for (const char* key : {"minus", "part", "text", "none", "big", "o", "missing"})
    EXPECT_EQ(whole(key), std::string("run, its state: '") + key + "' must be a whole number of 0 ... 9");
  EXPECT_EQ(error_of([&] { object.object("o").whole("n", 0, 6); }),
            "run, its state: 'o.n' must be a whole number of 0 ... 6");
  EXPECT_THAT(error_of([&] { object.whole("minus", 0); }), HasSubstr("a whole number of at least 0"));
  EXPECT_THAT(error_of([&] { object.counter("minus"); }), HasSubstr("'minus' must be a whole number"));
  EXPECT_THAT(error_of([&] { object.number("text"); }), HasSubstr("'text' must be a number"));
  EXPECT_THAT(error_of([&] { object.truth("minus"); }), HasSubstr("'minus' must be true or false"));
  EXPECT_THAT(error_of([&] { object.list("o"); }), HasSubstr("'o' must be a list"));
  EXPECT_THAT(error_of([&] { object.text("minus"); }), HasSubstr("'minus' must be a text"));
  EXPECT_THAT(error_of([&] { object.texts("list"); }), HasSubstr("'list' must be a list of texts"));
  EXPECT_THAT(error_of([&] { object.objects("list"); }), HasSubstr("'list' must be a list of objects"));
  EXPECT_THAT(error_of([&] { object.objects("os").at(0).whole("m", 0); }), HasSubstr("'os[0].m' must be"));
  EXPECT_THAT(error_of([&] { object.object("minus"); }), HasSubstr("'minus' must be an object"));
  EXPECT_EQ(error_of([&] { JsonObject(Json::array(), "state"); }), "state: not a JSON object");
}

}  // namespace
}  // namespace lapse
