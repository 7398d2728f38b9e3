#include "lapse/tasks/instruction_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/tasks/instruction_words.h"

namespace lapse {
namespace {

/// The file, whose values are checked as they are taken.
class WorldFile {
 public:
  WorldFile(const std::string& text, std::string origin) : origin_(std::move(origin)), json_(parsed(text)) {}

  [[noreturn]] void refuse(const std::string& what) const { refuse_all(fmt::format("{}: {}", origin_, what)); }

  const Json& root() const { return json_; }
  std::vector<std::string> ids(const char* kind) const {
    const Json& list = value(json_, kind, "the file", &Json::is_array, "a list");
    std::vector<std::string> all;
    for (const Json& id : list) {
      if (!id.is_string()) refuse(fmt::format("\"{}\" is no list of names", kind));
      all.push_back(id);
    }
    return all;
  }
  const Json& node(const std::string& id) const {
    const Json& nodes = value(json_, "nodes", "the file", &Json::is_object, "an object");
    return value(nodes, id, "\"nodes\"", &Json::is_object, "an object");
  }
  /// The ids that a node's `key` holds: its neighbors, or what it contains.
  std::vector<std::string> held(const std::string& id, const char* key) const {
    std::vector<std::string> all;
    for (const auto& [held, edge] : value(node(id), key, quoted(id), &Json::is_object, "an object").items())
      all.push_back(held);
    return all;
  }
  std::string text(const Json& object, const std::string& key, const std::string& where) const {
    return value(object, key, where, &Json::is_string, "a text");
  }
  static std::string quoted(const std::string& id) { return '"' + id + '"'; }

  const Json& value(const Json& object, const std::string& key, const std::string& where,
                    bool (Json::*is)() const noexcept, const char* kind) const {
    if (!object.is_object() || !object.contains(key)) refuse(fmt::format("{} has no \"{}\"", where, key));
    if (!(object[key].*is)()) refuse(fmt::format("\"{}\" of {} is not {}", key, where, kind));
    return object[key];
  }

 private:
  [[noreturn]] static void refuse_all(const std::string& what) {
    fail(what + "; instruction.world wants the world of a LIGHT game, as complex_world_2020-09.json");
  }
  Json parsed(const std::string& text) const {
    try {
      return parse_json(text, origin_);
    } catch (const Error& error) {
      refuse_all(error.what());
    }
  }

  std::string origin_;
  Json json_;
};

std::string name_of(const WorldFile& file, const std::string& id) {
  std::string name = file.text(file.node(id), "name", WorldFile::quoted(id));
  if (name.find_first_not_of(" \t\r\n") == name.npos) file.refuse(WorldFile::quoted(id) + " has an empty name");
  return name;
}

LightWorld::Room room_of(const WorldFile& file, const std::string& id, const std::map<std::string, int64_t>& rooms) {
  LightWorld::Room room{name_of(file, id), file.text(file.node(id), "desc", WorldFile::quoted(id)), {}, {}};
  for (const auto& held : file.held(id, "contained_nodes")) {
    const Json& node = file.node(held);
    if (!node.contains("object") || node["object"] != true) continue;
    const std::string prefix =
        node.contains("name_prefix") && node["name_prefix"].is_string() ? node["name_prefix"] : "";
    room.objects.push_back(prefix + ' ' + name_of(file, held));
  }
  for (const auto& next : file.held(id, "neighbors")) {
    if (!rooms.contains(next)) file.refuse(fmt::format("\"{}\" leads to \"{}\", which is no room", id, next));
    if (next == id) file.refuse(fmt::format("\"{}\" leads to itself", id));
    room.exits.push_back(rooms.at(next));
  }
  if (room.exits.empty()) file.refuse(fmt::format("no path leads out of \"{}\"", id));
  return room;
}

/// What is called alike could not be told apart in a log, and an order ends with a mark.
template <class Named>
void require_own_names(const WorldFile& file, const std::vector<Named>& all) {
  std::set<std::vector<std::string>> names;
  for (const auto& one : all) {
    std::istringstream spaced_name(spaced(one.name));
    const std::vector<std::string> words{std::istream_iterator<std::string>(spaced_name), {}};
    if (!names.insert(words).second) file.refuse(fmt::format("two are called \"{}\" in a log", one.name));
    for (const char* mark : {"!", "\"", "<unk>", "<eos>"})
      if (std::ranges::count(words, mark) > 0)
        file.refuse(fmt::format("the name \"{}\" has a {} in it", one.name, mark));
  }
}

}  // namespace

LightWorld parse_light_world(const std::string& json, const std::string& origin) {
  const WorldFile file(json, origin);
  LightWorld world;
  const auto ids = file.ids("rooms");
  std::map<std::string, int64_t> rooms;
  for (const auto& id : ids) rooms.emplace(id, std::ssize(rooms));
  if (rooms.size() != ids.size()) file.refuse("it lists a room twice");
  for (const auto& id : ids) world.rooms.push_back(room_of(file, id, rooms));
  for (const auto& id : file.ids("agents")) {
    const Json& place =
        file.value(file.node(id), "container_node", WorldFile::quoted(id), &Json::is_object, "an object");
    const std::string room = file.text(place, "target_id", "the place of " + WorldFile::quoted(id));
    if (!rooms.contains(room)) file.refuse(fmt::format("\"{}\" is in \"{}\", which is no room", id, room));
    world.agents.push_back({name_of(file, id), rooms.at(room)});
  }
  require_own_names(file, world.rooms);
  require_own_names(file, world.agents);
  if (world.rooms.size() < 2 || world.agents.size() < 3)
    file.refuse(fmt::format("it has {} rooms and {} agents, and a game needs 2 and 3", world.rooms.size(),
                            world.agents.size()));
  return world;
}

}  // namespace lapse
