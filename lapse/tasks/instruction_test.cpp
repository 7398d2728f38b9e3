// What the log asks for, what its vocabulary holds, and which files are refused. The rules of the games are checked by
// tests/instruction_test.py, from the logs alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lapse/core/json.h"
#include "lapse/core/testing.h"
#include "lapse/tasks/instruction_words.h"
#include "lapse/tasks/testing.h"

namespace lapse {
namespace {

using testing::HasSubstr;

/// Three rooms in a row.
Json small_world() {
  return Json::parse(R"({
    "agents": ["fox_1", "old man_2", "cook_3"], "rooms": ["hut_4", "road_5", "inn_6"], "objects": [],
    "nodes": {
      "fox_1": {"name": "fox", "container_node": {"target_id": "hut_4"}},
      "old man_2": {"name": "old man", "container_node": {"target_id": "hut_4"}},
      "cook_3": {"name": "cook", "container_node": {"target_id": "inn_6"}},
      "hut_4": {"name": "Hut", "desc": "A small, dark hut.", "contained_nodes": {"fox_1": {}}, "neighbors": {"road_5": {}}},
      "road_5": {"name": "Road", "desc": "Dusty.", "contained_nodes": {}, "neighbors": {"hut_4": {}, "inn_6": {}}},
      "inn_6": {"name": "Inn", "desc": "Full of people!", "contained_nodes": {}, "neighbors": {"road_5": {}}}
    }})");
}

class Instruction : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::string world(const Json& json) { return write("world.json", json.dump()); }

  TestFolder folder_;
};

/// Words of the test set, and which of them are asked for.
std::pair<std::vector<std::string>, std::vector<bool>> read(const TaskOptions& task, int64_t block) {
  const auto source = task.open();
  const auto blocks = source->evaluation("test", 1, block, false);
  std::pair<std::vector<std::string>, std::vector<bool>> all{{""}, {}};
  for (TokenBlock part; blocks->next(part);) {
    for (const int64_t target : part.target)
      all.first.push_back(source->vocabulary().decode(static_cast<int32_t>(target)));
    all.second.insert(all.second.end(), part.asked.begin(), part.asked.end());
  }
  all.first.erase(all.first.begin());
  return all;
}

TEST_F(Instruction, AsksForWhatIsToldAndNothingElse) {
  const auto task = make_task("instruction", {{"rounds", "30"}, {"test_words", "5000"}});
  const auto [words, asked] = read(*task, 64);
  ASSERT_EQ(words.size(), 5000u);
  int executions = 0;
  bool telling = false;
  for (size_t i = 3; i < words.size(); ++i) {
    const bool begins = words[i - 3] == "You " && words[i - 2] == "tell " && words[i - 1] == "the ";
    if (begins) telling = true, ++executions;
    ASSERT_EQ(asked[i], telling) << i;
    if (words[i] == "! ") telling = false;
  }
  EXPECT_GT(executions, 20);
  EXPECT_EQ(read(*task, 7), std::pair(words, asked)) << "blocks cut a log in any way";
}

TEST_F(Instruction, VocabularyHoldsTheWorldAndTheFrequentWordsOfTheChatter) {
  const std::string path = write("chatter.txt", "the sea, the sea! <unk> <eos>\nthe wide sea rolls on");
  const Settings settings = {{"world", world(small_world())}, {"chatter", path}, {"chatter_words", "3"}};
  const auto with = [&](int64_t most) {
    Settings all = settings;
    all.emplace_back("vocabulary", std::to_string(most));
    return make_task("instruction", all);
  };
  const auto own = make_task("instruction", {settings[0]})->open()->vocabulary().size();
  EXPECT_EQ(with(1000)->open()->vocabulary().size(), own + 4) << "sea wide rolls on";
  const auto source = with(own + 1)->open();
  EXPECT_EQ(source->vocabulary().size(), own + 1);
  EXPECT_EQ(source->vocabulary().decode(source->vocabulary().encode("sea")[0]), "sea ");
  EXPECT_NE(source->vocabulary().encode("sea")[0], 0);
  EXPECT_EQ(source->vocabulary().encode("wide")[0], 0) << "<unk>";
  EXPECT_THAT(error_of([&] { with(own - 1)->open(); }), HasSubstr("set at least " + std::to_string(own)));
  const auto [words, asked] = read(*with(1000), 64);
  for (size_t i = 1; i < words.size(); ++i)
    if (words[i] == "sea ") {
      EXPECT_THAT(words[i - 1], testing::AnyOf("the ", "wide ", ": "));
    }
  EXPECT_GT(std::ranges::count(words, "overhear "), 1000);
}

TEST_F(Instruction, AnotherWorldOrChatterIsAnotherText) {
  const auto sum = [&](const Settings& settings) {
    return make_task("instruction", settings)->open()->checksum("train");
  };
  const auto village = sum({}), other = sum({{"world", world(small_world())}});
  EXPECT_NE(village, other);
  EXPECT_NE(village, sum({{"chatter", write("chatter.txt", "the well")}}));
  EXPECT_EQ(village, sum({{"rounds", "9"}}));
  Json json = small_world();
  auto& place = json["nodes"][json["agents"][0].get<std::string>()]["container_node"]["target_id"];
  for (const std::string room : json["rooms"])
    if (room != place) {
      place = room;
      break;
    }
  const auto whole = [&] { return make_task("instruction", {{"world", world(json)}})->open()->checksum("valid"); };
  const uint32_t moved = whole();
  json = small_world();
  EXPECT_NE(moved, whole()) << "an agent begins elsewhere";
}

TEST_F(Instruction, RefusesFilesOfAnotherForm) {
  const auto says = [&](const std::function<void(Json&)>& change) {
    Json json = small_world();
    change(json);
    const std::string path = world(json), error = error_of([&] {
                                            make_task("instruction", {{"world", path}})->open();
                                          });
    EXPECT_THAT(error, testing::StartsWith(path + ": "));
    EXPECT_THAT(error, testing::EndsWith("wants the world of a LIGHT game, as complex_world_2020-09.json"));
    return error;
  };
  EXPECT_EQ(error_of([&] { make_task("instruction", {{"world", world(small_world())}})->open(); }), "");
  EXPECT_THAT(says([](Json& w) { w = Json::array(); }), HasSubstr("the file has no \"rooms\""));
  EXPECT_THAT(says([](Json& w) { w.erase("nodes"); }), HasSubstr("the file has no \"nodes\""));
  EXPECT_THAT(says([](Json& w) { w["rooms"] = 3; }), HasSubstr("\"rooms\" of the file is not a list"));
  EXPECT_THAT(says([](Json& w) { w["agents"][0] = 3; }), HasSubstr("\"agents\" is no list of names"));
  EXPECT_THAT(says([](Json& w) { w["nodes"].erase("inn_6"); }), HasSubstr("\"nodes\" has no \"inn_6\""));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["inn_6"]["desc"] = 1; }), HasSubstr("\"desc\" of \"inn_6\" is not a text"));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["inn_6"]["neighbors"] = Json::object(); }),
              HasSubstr("no path leads out of \"inn_6\""));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["inn_6"]["neighbors"]["sea"] = {}; }), HasSubstr("which is no room"));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["inn_6"]["neighbors"]["inn_6"] = {}; }), HasSubstr("leads to itself"));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["fox_1"]["container_node"]["target_id"] = "x"; }),
              HasSubstr("\"fox_1\" is in \"x\", which is no room"));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["fox_1"]["name"] = "cook"; }), HasSubstr("two are called \"cook\""));
  EXPECT_THAT(says([](Json& w) { w["nodes"]["fox_1"]["name"] = " co ok", w["nodes"]["cook_3"]["name"] = "co  ok"; }),
              HasSubstr("two are called"));
  for (const char* name : {"fox!", "the \"fox\"", "<unk> fox", "fox <eos>"})
    EXPECT_THAT(says([&](Json& w) { w["nodes"]["fox_1"]["name"] = name; }), HasSubstr("in it")) << name;
  EXPECT_THAT(says([](Json& w) { w["nodes"]["fox_1"]["name"] = " "; }), HasSubstr("has an empty name"));
  EXPECT_THAT(says([](Json& w) { w["agents"].erase(0); }), HasSubstr("3 rooms and 2 agents"));
  for (const std::string option : {"world", "chatter"}) {
    const auto error = [&](const std::string& path) {
      return error_of([&] { make_task("instruction", {{option, path}})->open(); });
    };
    EXPECT_THAT(error("/none"), HasSubstr("instruction." + option + ": there is no file /none"));
    EXPECT_THAT(error(write("empty", " \n")), HasSubstr("empty is empty"));
    EXPECT_THAT(error(write("bytes", "\xff")), HasSubstr("bytes"));
  }
  EXPECT_THAT(error_of([&] {
                make_task("instruction", {{"world", write("text", "no JSON")}})->open();
              }),
              HasSubstr("text"));
}

}  // namespace
}  // namespace lapse
