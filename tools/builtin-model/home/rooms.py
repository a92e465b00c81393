"""Rooms and places of a house, office, farm, boat, school: known ones, combined ones and invented ones.

room(rng): a name as it stands behind "the" ("upstairs hallway"). room_phrase(rng): (text, value) with its article and
braces ("the {kitchen}", "my {office}", "{Lisa's bedroom}"). room_place(rng): the same behind its preposition
("in the {kitchen}", "on the {balcony}", "{upstairs}").
"""

from grammar import chance, copied, invented, one_of

COMMON = [
    "kitchen", "bedroom", "living room", "bathroom", "hallway", "office", "dining room", "garage", "hall", "study", "basement", "attic", "garden",
    "kids' room", "guest room", "lounge", "nursery", "porch", "balcony", "terrace", "patio", "cellar", "den", "laundry room", "master bedroom",
    "corridor", "toilet", "playroom", "conservatory", "utility room", "pantry", "closet", "entrance", "staircase", "backyard", "driveway",
]  # fmt: skip
HOUSE = [
    "family room", "sitting room", "drawing room", "breakfast room", "sunroom", "sun room", "mudroom", "mud room", "boot room", "cloakroom",
    "powder room", "ensuite", "en suite", "washroom", "shower room", "wet room", "restroom", "walk-in closet", "wardrobe", "dressing room",
    "linen closet", "storage room", "storeroom", "box room", "boxroom", "spare room", "spare bedroom", "guest bedroom", "guest bathroom",
    "guest suite", "master bathroom", "master suite", "main bedroom", "main bathroom", "kids' bedroom", "kids' bathroom", "children's room",
    "children's bedroom", "baby's room", "baby room", "boys' room", "girls' room", "twins' room", "teenagers' room", "parents' room",
    "parents' bedroom", "nanny's room", "au pair's room", "library", "reading room", "reading nook", "reading corner", "music room", "piano room",
    "game room", "games room", "gaming room", "gaming corner", "media room", "home cinema", "home theater", "home theatre", "cinema room",
    "TV room", "tv room", "gym", "home gym", "fitness room", "yoga room", "sauna", "steam room", "pool", "pool room", "pool house", "spa", "bar",
    "home bar", "wine cellar", "larder", "scullery", "kitchenette", "breakfast nook", "dining area", "seating area", "living area", "foyer",
    "entryway", "entrance hall", "vestibule", "lobby", "landing", "stairwell", "stairs", "front hall", "back hall", "passage", "passageway", "loft",
    "mezzanine", "gallery", "crawl space", "boiler room", "furnace room", "heating room", "server room", "cupboard", "broom closet",
    "airing cupboard", "workshop", "hobby room", "craft room", "sewing room", "studio", "art studio", "home office", "work room", "workroom",
    "alcove", "snug", "parlor", "parlour", "winter garden", "orangery", "atrium", "veranda", "verandah", "deck", "front porch", "back porch",
    "screened porch", "roof terrace", "rooftop", "courtyard", "yard", "front yard", "back yard", "front garden", "back garden", "carport", "shed",
    "garden shed", "tool shed", "bike shed", "woodshed", "greenhouse", "summer house", "summerhouse", "gazebo", "pergola", "treehouse",
    "tree house", "dog house", "kennel", "cat room", "chicken coop", "doghouse", "granny flat", "annex", "annexe", "guest house", "guesthouse",
    "apartment", "flat", "cabin", "cottage", "chalet", "bungalow", "caravan", "camper", "motorhome", "tent", "yurt", "garden path", "blue room",
    "green room", "red room", "ground floor", "first floor", "second floor", "top floor", "panic room", "bunk room", "bunk bed", "prayer room",
    "chapel", "trophy room", "smoking room", "billiard room", "ballroom", "great room", "rumpus room", "bonus room", "train room", "puppet room",
    "toy room", "darkroom", "photo studio",
]  # fmt: skip
ELSEWHERE = [
    "meeting room", "conference room", "boardroom", "break room", "staff room", "reception", "waiting room", "copy room", "print room", "mail room",
    "open-plan office", "back office", "call center", "canteen", "cafeteria", "showroom", "warehouse", "loading dock", "loading bay", "stockroom",
    "shop", "shop floor", "shop window", "fitting room", "salon", "bakery", "lab", "laboratory", "clean room", "operating room", "clinic",
    "treatment room", "consulting room", "ward", "classroom", "lecture hall", "auditorium", "assembly hall", "gymnasium", "sports hall",
    "locker room", "changing room", "changing rooms", "teachers' lounge", "science lab", "computer room", "art room", "dormitory", "dorm room",
    "common room", "student lounge", "playground", "barn", "stable", "stables", "cowshed", "milking parlor", "hayloft", "henhouse", "pigsty",
    "silo", "granary", "tack room", "paddock", "orchard", "tractor shed", "goat house", "sheep pen", "galley", "saloon", "cockpit", "wheelhouse",
    "engine room", "forward cabin", "aft cabin", "lower deck", "upper deck", "foredeck", "crew cabin", "captain's cabin", "stern", "bow",
    "boathouse", "hangar", "stage", "backstage area", "dressing rooms", "foyer bar", "dance floor", "rehearsal room", "recording studio",
    "control room", "green room", "church", "vestry", "bell tower", "museum shop", "hotel lobby", "elevator", "lift", "parking lot", "car park",
    "bus", "club room", "clubhouse", "observatory", "tower", "tower room", "dungeon", "vault", "archive", "map room", "wine bar", "pub",
    "beer garden", "restaurant", "dojo",
]  # fmt: skip
ADJECTIVES = [
    "upstairs", "downstairs", "small", "big", "large", "little", "upper", "lower", "front", "back", "rear", "north", "south", "east", "west",
    "left", "right", "middle", "old", "new", "second", "first", "third", "main", "spare", "guest", "outdoor", "indoor", "outer", "inner", "corner",
    "side", "basement", "attic", "first floor", "second floor", "ground floor", "top floor", "cozy", "cosy", "private", "shared", "staff", "family",
    "open", "long", "narrow", "round", "quiet", "formal", "tiny", "oak", "glass", "garden",
]  # fmt: skip
KINDS = [
    "room", "bedroom", "bathroom", "hallway", "hall", "office", "lounge", "kitchen", "study", "corridor", "balcony", "terrace", "entrance", "porch",
    "toilet", "closet", "guest room", "playroom", "living room", "dining room", "garage", "stairs", "staircase", "landing", "cellar",
    "storage room", "workshop", "shed", "cabin", "deck", "gallery", "studio", "wing", "patio", "sitting room", "library", "nook", "lobby", "gym",
    "sauna",
]  # fmt: skip
THINGS = [
    "dog", "cat", "toy", "plant", "book", "fish", "parrot", "puzzle", "guitar", "drum", "lego", "tea", "coffee", "cheese", "wine", "whisky",
    "bread", "shoe", "coat", "bike", "ski", "surf", "fishing", "hunting", "painting", "pottery", "knitting", "quilting", "model", "robot",
    "computer", "podcast", "radio", "server", "battery", "pump", "tool", "paint", "seed", "honey", "wool", "feed", "horse", "pony", "rabbit",
    "turtle", "costume", "prop", "chess", "poker", "dart", "ping pong", "dance", "ballet", "meditation", "massage", "jacuzzi", "moon", "star",
    "sun", "shell", "lemon", "rose", "panda", "tiger", "dragon", "princess", "pirate", "rocket", "dinosaur", "unicorn", "homework", "nap", "snack",
    "party", "Christmas", "vinyl",
]  # fmt: skip
PLACES = ["room", "room", "room", "corner", "house", "den", "cellar", "shed", "studio", "nook", "cave", "loft", "barn", "chamber", "closet", "hut"]
PEOPLE = [
    "Lisa", "Tom", "Anna", "Ben", "Emma", "Max", "Sophie", "Jack", "Oliver", "Mia", "Noah", "Lucy", "Peter", "Maria", "Ahmed", "Fatima", "Yuki",
    "Wei", "Priya", "Raj", "Carlos", "Elena", "Olga", "Ivan", "Zoe", "Leo", "Nina", "Paul", "Sarah", "David", "Grace", "Henry", "Ella", "Sam",
    "Alex", "Kate", "Hugo", "Ingrid", "Lars", "Maja", "Finn", "Greta", "Otto", "Clara", "Felix", "Ruth", "George", "Jin", "Amara", "Kofi", "Chidi",
    "Ravi", "Leila", "Omar", "Sven", "Freya", "Dylan", "Megan", "Ryan", "Chloe", "Jake", "Ruby", "Tim", "Rosa", "Diego", "Bella", "Theo", "Ivy",
    "Owen", "Hannah", "James", "Chris", "Thomas", "Mum", "Mom", "Dad", "Grandma", "Grandpa", "Granny", "Nana", "Aunt May", "Uncle Joe", "Mrs Bell",
    "Mr Cole",
]  # fmt: skip
FAMILY = [
    "mum", "mom", "dad", "grandma", "grandpa", "daughter", "son", "sister", "brother", "wife", "husband", "roommate", "baby", "boss", "flatmate",
]  # fmt: skip
OWNED = [
    "room", "room", "room", "bedroom", "bedroom", "office", "study", "bathroom", "den", "workshop", "studio", "corner", "house", "place", "closet",
    "nursery", "cabin", "flat", "apartment", "shed", "garage", "cave", "hut", "playroom", "dressing room", "bunk",
]  # fmt: skip
SURFACES = {
    "balcony", "terrace", "patio", "porch", "veranda", "verandah", "deck", "landing", "roof", "rooftop", "stairs", "stage", "staircase", "driveway",
    "foredeck", "dock", "floor", "mezzanine", "playground", "path",
}  # fmt: skip
POINTS = {"door", "gate", "desk", "entrance", "reception", "window", "island", "pool", "tub", "bar", "bay"}
NUMBERS = ["one", "two", "three", "1", "2", "3", "4", "12", "A", "B"]
ADVERBS = ["upstairs", "upstairs", "downstairs", "downstairs", "outside", "outside", "outdoors"]


def new_word(rng, capital=False):
    """An invented word that is none of the short ones of the language ("the")."""
    word = invented(rng, capital)
    return word if len(word) > 3 else new_word(rng, capital)


def room(rng):
    """A room's name as it stands behind "the"."""
    x = rng.random()
    if x < 0.34:
        return one_of(rng, COMMON)
    if x < 0.57:
        return one_of(rng, HOUSE)
    if x < 0.70:
        return one_of(rng, ELSEWHERE)
    if x < 0.80:
        adjective, kind = one_of(rng, ADJECTIVES), one_of(rng, KINDS)
        return kind if kind.startswith(adjective) else adjective + " " + kind
    if x < 0.88:
        return one_of(rng, THINGS) + " " + one_of(rng, PLACES)
    if x < 0.93:
        return new_word(rng, chance(rng, 0.2)) + one_of(rng, ["", " ", " "]) + one_of(rng, PLACES)
    return new_word(rng) + " " + one_of(rng, KINDS)


def somebody(rng):
    """A name, or an invented one, with its 's."""
    return (new_word(rng, True) if chance(rng, 0.2) else one_of(rng, PEOPLE)) + "'s"


def owned_room(rng):
    """A room with its owner, which takes no article."""
    return somebody(rng) + " " + one_of(rng, OWNED)


def room_phrase(rng):
    """(text with article and braces, value)."""
    x = rng.random()
    if x < 0.08:
        name = owned_room(rng)
        return copied(name), name
    if x < 0.11:
        name = one_of(rng, FAMILY) + "'s " + one_of(rng, OWNED)
        return one_of(rng, ["my ", "our "]) + copied(name), name
    if x < 0.13:
        name = one_of(rng, KINDS) + " " + one_of(rng, NUMBERS)
        return copied(name), name
    name = room(rng)
    if chance(rng, 0.06) and name in COMMON:
        return one_of(rng, ["my ", "my ", "our "]) + copied(name), name
    return "the " + copied(name), name


def place(text, name):
    """The phrase behind the preposition of its room: "on the {balcony}"."""
    last = name.split()[-1]
    return ("on " if last in SURFACES else "at " if last in POINTS else "in ") + text


def room_place(rng):
    """(text with preposition, article and braces, value)."""
    if chance(rng, 0.04):
        name = one_of(rng, ADVERBS)
        return copied(name), name
    text, name = room_phrase(rng)
    return place(text, name), name


def the(name):
    """The room as the assistant calls it: "the kitchen", "your wife's den", "Lisa's bedroom"."""
    owner = name.split("'s ")[0]
    if owner in FAMILY:
        return "your " + name
    if name[0].isupper() and owner != name or name.split()[-1] in NUMBERS or name in ADVERBS:
        return name
    return "the " + name


def where(name):
    """The place as the assistant calls it: "on the balcony", "upstairs"."""
    return name if name in ADVERBS else place(the(name), name)
