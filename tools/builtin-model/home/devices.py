"""Wishes for devices (tv, kettle, robot vacuum ...), for blinds and for the heating, and what follows them."""

import re

from grammar import Request, chance, copied, expand, in_words, one_of
from lights import MOOD_REASONS, OFF_REASONS, done, percent, rooms_apart, style, switch_words, with_reason
from rooms import ADVERBS, COMMON, PEOPLE, THINGS, new_word, place, room_phrase, room_place, the, where

DEVICES = [
    "tv", "TV", "television", "fan", "heater", "oven", "kettle", "coffee machine", "robot vacuum", "dishwasher", "washing machine", "dryer",
    "air conditioner", "air conditioning", "AC", "humidifier", "dehumidifier", "air purifier", "projector", "computer", "printer", "vacuum cleaner",
    "vacuum", "toaster", "microwave", "iron", "coffee maker", "stove", "fireplace", "ceiling fan", "space heater", "electric blanket", "router",
]  # fmt: skip
MORE_DEVICES = [
    "telly", "smart tv", "flat screen", "beamer", "video projector", "DVD player", "Blu-ray player", "set-top box", "game console", "PlayStation",
    "Xbox", "Switch dock", "desktop computer", "pc", "PC", "laptop", "monitor", "second monitor", "scanner", "laser printer", "3D printer",
    "plotter", "shredder", "server", "modem", "wifi", "Wi-Fi", "wifi router", "network switch", "webcam", "camera", "security camera",
    "doorbell camera", "baby monitor", "tower fan", "desk fan", "floor fan", "stand fan", "exhaust fan", "extractor fan", "cooker hood",
    "range hood", "hood", "aircon", "a/c", "air con", "air cooler", "swamp cooler", "ventilation", "ventilator", "air filter", "air cleaner",
    "ionizer", "vaporizer", "fan heater", "electric heater", "oil heater", "infrared heater", "gas heater", "halogen heater", "panel heater",
    "towel heater", "towel warmer", "towel rail", "heating pad", "heating blanket", "heated blanket", "heated mattress", "foot warmer",
    "bottle warmer", "plate warmer", "water heater", "boiler", "immersion heater", "heat pump", "electric fireplace", "gas fire", "wood stove fan",
    "pellet stove", "espresso machine", "espresso maker", "coffee grinder", "coffee pot", "percolator", "milk frother", "tea maker", "tea kettle",
    "electric kettle", "samovar", "water boiler", "water cooler", "water filter", "soda maker", "ice maker", "ice cream maker", "yogurt maker",
    "bread maker", "bread machine", "pasta machine", "rice cooker", "slow cooker", "pressure cooker", "multicooker", "crock pot", "air fryer",
    "deep fryer", "sous vide", "steamer", "egg cooker", "egg boiler", "waffle iron", "waffle maker", "panini press", "sandwich maker",
    "raclette grill", "grill", "electric grill", "hot plate", "hob", "cooktop", "cooker", "toaster oven", "pizza oven", "blender", "mixer",
    "stand mixer", "hand mixer", "food processor", "juicer", "smoothie maker", "popcorn machine", "popcorn maker", "food dehydrator",
    "vacuum sealer", "fridge", "refrigerator", "freezer", "wine cooler", "wine fridge", "minibar", "mini fridge", "garbage disposal",
    "trash compactor", "washer", "tumble dryer", "spin dryer", "drying rack heater", "steam iron", "ironing press", "sewing machine",
    "knitting machine", "hoover", "robot mop", "mop robot", "steam mop", "robovac", "Roomba", "robot cleaner", "window cleaner robot",
    "carpet cleaner", "central vacuum", "lawn mower", "robot mower", "lawn robot", "sprinkler", "sprinkler system", "lawn sprinkler", "irrigation",
    "irrigation system", "drip irrigation", "watering system", "fountain", "water pump", "pond pump", "well pump", "sump pump", "pool pump",
    "pool robot", "pool cleaner", "pool cover", "hot tub", "jacuzzi", "whirlpool", "sauna heater", "sauna stove", "steam generator",
    "aquarium pump", "aquarium filter", "fish tank filter", "fish feeder", "cat feeder", "dog feeder", "pet feeder", "pet fountain", "cat fountain",
    "litter robot", "bird bath heater", "bug zapper", "mosquito trap", "mosquito killer", "fog machine", "smoke machine", "bubble machine",
    "snow machine", "diffuser", "aroma diffuser", "oil diffuser", "scent machine", "air freshener", "white noise machine", "sound machine",
    "hair dryer", "hairdryer", "hair straightener", "curling iron", "electric toothbrush", "massage chair", "massage gun", "foot massager",
    "treadmill", "exercise bike", "rowing machine", "elliptical", "cross trainer", "charger", "phone charger", "wallbox", "car charger",
    "charging station", "EV charger", "bike charger", "battery charger", "inverter", "generator", "solar inverter", "power strip", "smart plug",
    "plug", "socket", "outlet", "extension cord", "transformer", "compressor", "air compressor", "table saw", "band saw", "drill press", "lathe",
    "soldering iron", "glue gun", "laser cutter", "CNC mill", "sander", "kiln", "pottery wheel", "welder", "dust collector", "leaf blower",
    "pressure washer", "snow blower", "milking machine", "milk tank cooler", "egg incubator", "incubator", "feed mixer", "grain dryer",
    "conveyor belt", "forklift charger", "electric fence", "bilge pump", "water maker", "bow thruster", "autopilot", "radar", "navigation system",
    "anchor winch", "winch", "windlass", "copier", "copy machine", "photocopier", "coffee vending machine", "vending machine", "paper shredder",
    "label printer", "smart board", "interactive whiteboard", "overhead projector", "microscope", "centrifuge", "fume hood", "autoclave",
    "cash register", "slot machine", "pinball machine", "arcade machine", "train set", "model railway", "model train", "racetrack", "robot arm",
    "robot dog", "toy robot", "bubble bath machine", "telescope mount", "weather station", "dash cam", "seat heater", "seat heating",
    "windshield heater", "garage heater fan", "hand dryer", "metal detector", "turnstile", "soup kettle", "chocolate fountain",
    "cotton candy machine", "slush machine", "beer tap cooler", "keg cooler", "dough mixer", "meat grinder", "floor polisher", "polishing machine",
    "wallpaper steamer", "tile cutter", "paint mixer", "screen", "tablet", "digital frame", "picture frame",
]  # fmt: skip
MANY = [
    "sprinklers", "fans", "heaters", "ceiling fans", "monitors", "printers", "cameras", "security cameras", "space heaters", "water pumps",
    "screens", "projectors", "treadmills", "grow fans", "vending machines", "plugs", "sockets", "humidifiers", "computers", "air purifiers",
]  # fmt: skip
MACHINES = [
    "machine", "maker", "heater", "fan", "pump", "robot", "cooker", "cleaner", "warmer", "cooler", "dryer", "grinder", "feeder", "motor", "charger",
    "press", "mixer", "filter", "washer", "slicer", "polisher", "roaster", "steamer", "blower", "engine", "generator", "box", "thing",
]  # fmt: skip
STUFF = [
    "nut", "noodle", "pancake", "dumpling", "cake", "jam", "cheese", "pillow", "boot", "glove", "sock", "leaf", "rug", "tile", "window", "bubble",
    "cocoa", "donut", "tofu", "bean", "garlic", "candle", "soap", "hay", "apple", "turtle", "hamster", "hedgehog", "rabbit", "duck", "seedling",
    "compost", "rain", "foam", "mud", "snow", "wax", "ribbon", "confetti", "laser", "steam", "turbo", "mini", "super", "wall", "under-desk", "car",
    "boat", "tent", "mattress", "sofa", "chair", "bed", "foot", "hand", "neck", "beard", "nail", "shoe", "hat", "crystal", "plasma", "sonic",
]  # fmt: skip
QUALITIES = [
    "old", "new", "little", "big", "small", "portable", "red", "blue", "black", "white", "second", "spare", "other", "noisy", "automatic",
    "cordless", "smart", "outdoor", "antique", "Japanese", "Italian", "ancient", "silver", "wireless", "solar",
]  # fmt: skip
NICKNAMES = [
    "Rosie", "Dusty", "Alfred", "Jarvis", "Marvin", "Robbie", "Bender", "Wall-E", "Dobby", "Mr Clean", "Suckbot", "Mowgli", "Betty", "Henry",
    "Zippy",
]  # fmt: skip


def device_name(rng):
    """(text with article and braces, curt text, value, plural)."""
    x = rng.random()
    if x < 0.42:
        name = one_of(rng, DEVICES)
    elif x < 0.76:
        name = one_of(rng, MORE_DEVICES)
    elif x < 0.8:
        name = one_of(rng, MANY)
        return one_of(rng, ["the ", "the ", "the ", "our "]) + copied(name), copied(name), name, True
    elif x < 0.89:
        first, last = one_of(rng, STUFF + THINGS), one_of(rng, MACHINES)
        name = "mini " + last if first == last else first + " " + last
    elif x < 0.92:
        name = one_of(rng, QUALITIES) + " " + one_of(rng, DEVICES[:1] + DEVICES[2:])
    elif x < 0.95:
        name = new_word(rng, chance(rng, 0.3)) + one_of(rng, ["", "", " " + one_of(rng, MACHINES), " 3000", " " + str(rng.randint(2, 99))])
    elif x < 0.97:
        name = one_of(rng, NICKNAMES)
        return copied(name), copied(name), name, False
    else:
        name = one_of(rng, PEOPLE) + "'s " + one_of(rng, DEVICES[2:] + MORE_DEVICES)
        return copied(name), copied(name), name, False
    return one_of(rng, ["the "] * 7 + ["my ", "our "]) + copied(name), copied(name), name, False


PLAIN = [
    "tv", "fan", "heater", "air conditioner", "humidifier", "air purifier", "dehumidifier", "projector", "television", "TV", "AC", "ceiling fan",
    "space heater", "computer", "printer", "aircon", "dryer", "fireplace",
]  # fmt: skip


def device_target(rng):
    """$l the device with its article (and where it stands), $k the same curtly, $w its place or nothing: (values, arguments)."""
    x = rng.random()
    if x < 0.07:
        name, room = one_of(rng, PLAIN), one_of(rng, COMMON)
        values = {"l": "the " + copied(room) + " " + copied(name), "k": copied(room) + " " + copied(name),
        "d": "the " + copied(room) + " " + copied(name)}
        values.update({"w": "", "is": "is", "it": "it", "needs": "needs", "has": "has"})
        return values, {"device": name, "room": room}
    text, curt, name, plural = device_name(rng)
    arguments = {"device": name}
    values = {"l": text, "d": text, "k": curt, "w": ""}
    if chance(rng, 0.3):
        at, arguments["room"] = room_place(rng)
        values.update(l=text + " " + at, w=at, k=one_of(rng, [curt + " " + at, curt + " " + at, curt + " " + copied(arguments["room"])]))
    agreeing = {"is": "are", "it": "them", "needs": "need", "has": "have"} if plural else {"is": "is", "it": "it", "needs": "needs", "has": "has"}
    return values | agreeing, arguments


DEVICE_ON = [
    "turn on", "turn on", "turn on", "switch on", "switch on", "switch on", "start", "start", "start up", "fire up", "power on", "power up", "run",
    "activate", "put on", "flip on", "boot up", "kick off", "enable", "launch", "wake up", "start up",
]  # fmt: skip
DEVICE_OFF = [
    "turn off", "turn off", "turn off", "switch off", "switch off", "switch off", "stop", "stop", "shut off", "shut down", "kill", "power off",
    "power down", "deactivate", "cut", "disable", "shut off", "halt",
]  # fmt: skip
DEVICE_ON_ING = ["turning on", "turning on", "switching on", "switching on", "starting", "starting up", "firing up", "running", "powering on"]
DEVICE_OFF_ING = ["turning off", "turning off", "switching off", "switching off", "stopping", "shutting off", "shutting down", "killing"]

DEVICE_COMMANDS = [
    "$v $l", "$v $l", "$v $l", "$v $l", "$v $d $w",
    "$v $l [now|for me|right now|again|right away|at once|immediately|quickly|for a while|for a bit]", "[turn|switch] $l $s",
    "[turn|switch|flip] $d $s $w", "[turn|switch|power] $d $s $w [now|for me|right now|again|]", "make sure [|that] $l $is $s",
    "make sure $l $is [switched|turned] $s", "see to it that $l $is $s", "see that $l $is $s", "go ahead and $v $l", "get $l [turned|switched] $s",
    "have $l [turned|switched] $s", "do me a favor and $v $l", "set $l to $s", "just $v $l", "quickly $v $l", "put $l $s", "be a dear and $v $l",
    "go and [turn|switch] $l $s", "check that $l $is $s", "remember to $v $l", "don't forget to $v $l", "try to $v $l",
    "put the power $s for $d $w", "switch the power of $d $s", "turn the power to $d $s", "do me a favour and switch $l $s", "help me and $v $l",
]  # fmt: skip
DEVICE_ON_COMMANDS = [
    "get $d going $w", "get $d running $w", "let $d run $w", "set $d going $w", "let $l run [for a while|]", "give $d some power", "fire $d up $w",
    "start $d up $w", "power $d up $w", "start running $l", "leave $l on", "keep $l on", "keep $l running", "let $l start", "have $l run",
    "have $l start", "make $l run", "make $l start", "put $l to work", "bring $d to life", "kick $d into gear", "get $l started",
    "have $d running $w", "turn $l back on", "send $d to work", "tell $l to start", "begin running $l", "set $l running",
    "put $d into operation $w", "switch $l back on", "wake $d up",
]  # fmt: skip
DEVICE_OFF_COMMANDS = [
    "shut $d off $w", "shut $d down $w", "shut down $l", "stop $l", "kill $l", "cut the power to $l", "make $l stop", "bring $l to a stop",
    "let $l stop", "put a stop to $l", "stop running $l", "power $d down $w", "get $l to stop", "have $l stop", "tell $l to stop",
    "tell $l to shut down", "don't let $l run", "don't leave $l on", "give $l a rest", "let $l rest", "kill the power to $d $w", "turn $l back off",
    "take the power off $d", "stop $d $w now", "shut $l off right now", "save some power and turn off $l", "send $d to sleep", "put $d to sleep",
    "cut $d off $w",
]  # fmt: skip
DEVICE_STATEMENTS = [
    "$k $s", "$k $s", "$k $s", "$k $s", "$k, $s", "$k: $s", "$s with $d $w", "$k $s [now|again|for me|right now|]", "$w $d $s", "$d $s", "$d $s $w",
    "[I'd like|I would like] $l $s", "I [want|need] $l $s", "I [want|need] $l [switched|turned] $s [now|right now|at once|again]", "we need $l $s",
    "I'd [love|like] to have $l $s", "$l should be $s", "$l should go $s", "$l [must|should] be [switched|turned] $s", "$l $needs to be $s",
    "$l $has to be $s", "let's have $l $s", "let's turn $l $s", "let's $v $l", "time to $v $l", "it's time to $v $l", "you can $v $l [now|]",
    "you may $v $l", "you should $v $l", "I was hoping you could $v $l", "I'd appreciate it if you turned $l $s",
    "it would be [nice|good|great] if you could $v $l", "I forgot to $v $l", "my [wife|husband|mother|sister|roommate] wants $l $s",
    "I think we should $v $l", "somebody needs to $v $l", "someone should $v $l", "I want you to $v $l", "I need you to $v $l",
    "I'd rather have $l $s", "I'd prefer $l $s", "I wish $l were $s", "you forgot to $v $l", "I want to $v $l", "I'd like to $v $l",
    "if you could $v $l", "maybe you could $v $l", "perhaps $v $l", "now $v $l", "first $v $l", "quick, $v $l", "I'd be happy if you could $v $l",
    "I'd like you to $v $l", "next, $v $l", "it's about time to $v $l", "$l can be [turned|switched] $s now", "we forgot to $v $l",
    "somebody forgot to $v $l", "I asked you to $v $l", "it'd be great to have $l $s", "I'd like $d [switched|turned] $s $w",
]  # fmt: skip
DEVICE_ON_STATEMENTS = [
    "I need $l", "I want to use $l", "I'd like to use $l", "I'm going to need $l", "we need $l running", "I want $l running", "$l can start now",
    "$k go", "$l should run now", "$l should start now", "time for $l", "it's time for $l", "let's start $l", "let's get $d going $w",
    "$l should be running", "I'd like $l to run", "I'd like $l to start", "I want $l to start", "it's time $l got to work", "let's fire up $l",
    "I'd love $l running", "we're ready for $l", "I could use $l right now", "$l may start", "you can start $l now", "let's use $l",
    "everything is ready, $l can start", "$k, start", "$l, go", "on with $d $w", "$d $needs to start",
]  # fmt: skip
DEVICE_OFF_STATEMENTS = [
    "$l can go off", "$l can go off now", "$l can stop now", "we don't need $l [any more|anymore|now|right now]",
    "I don't need $l [any more|anymore|now]", "no need for $l [any more|anymore|now]", "$l $is still on, [turn|switch] $it off",
    "I left $l on, [turn|switch] $it off", "I think I left $l on", "somebody left $l on", "$l $is wasting electricity",
    "nobody needs $l [now|any more|anymore]", "I don't want $l on [any more|anymore|]", "$k stop", "there's no reason for $l to be on",
    "$l shouldn't be on [now|any more]", "I'm done with $l", "we're done with $l", "I'm finished with $l", "$k, stop",
    "$l $is too loud, [turn|switch|shut] $it off", "$l $is getting on my nerves, [turn|switch] $it off",
    "I can't stand the noise of $l, turn $it off", "$l $has been running long enough", "enough of $l", "$l $has run long enough",
    "that's enough, stop $l", "let's stop $l", "$l can rest now", "I can't sleep with $l on", "I can't hear a thing with $l running, turn $it off",
    "nobody is using $l, turn $it off", "we're not using $l", "I want $l to stop", "I'd like $l to stop", "I want to stop $l", "$l must stop",
    "no more $k", "I don't want $l running any more", "$l $is driving me mad, make $it stop", "you can kill $l",
    "I forgot that $l $is on, turn $it off", "$l may be shut down", "I no longer need $l",
]  # fmt: skip
DEVICE_QUESTIONS = [
    "would you mind $ving $l", "would you mind [turning|switching] $l $s", "mind $ving $l", "do you mind $ving $l", "can [I|we] have $l $s",
    "could [I|we] [have|get] $l $s", "may [I|we] have $l $s", "may I ask you to $v $l", "shall we $v $l", "can we get $l $s", "how about $ving $l",
    "what about $ving $l", "why don't you $v $l", "why don't we $v $l", "why not $v $l", "is it possible to $v $l", "would it be possible to $v $l",
    "any chance you could $v $l", "any chance of getting $l $s", "can $l be [turned|switched] $s", "do you think you could $v $l",
    "could I trouble you to $v $l", "won't you $v $l", "would you be so kind as to $v $l", "can you get $l $s", "would you be able to $v $l",
    "could someone $v $l", "can somebody $v $l", "will you [turn|switch] $l $s", "can I ask you to $v $l", "could $l go $s",
    "can you see to it that $l $is $s", "could you [turn|switch] $d $s $w for me", "you couldn't $v $l, could you", "$v $l, will you",
    "[turn|switch] $l $s, would you", "$k $s, okay", "did you forget to $v $l", "can't you $v $l", "isn't it time to $v $l",
    "are you able to $v $l", "would you $v $l for me", "could we $v $l", "can we $v $l", "may I bother you to $v $l",
]  # fmt: skip
DEVICE_ON_REASONS = [
    "I'm home", "we just got home", "I just woke up", "good morning", "it's hot", "it's stuffy", "the kids are bored", "guests are coming",
    "I'm ready", "my show is about to start", "the game is on", "I need to get to work", "I'm in a hurry", "my hands are wet",
    "everything is ready", "I'm busy here", "I'm on the sofa", "breakfast time", "I'm tired", "it smells", "the electricity is cheap now",
    "the sun is shining", "the air is bad", "I've got guests", "we're about to begin", "everyone's waiting", "I can't reach it", "it's freezing",
    "I've got my hands full", "we have power again", "I loaded it",
]  # fmt: skip
DEVICE_OFF_REASONS = [
    "we're leaving", "good night", "I'm off to bed", "it's too loud", "the baby is asleep", "I'm on the phone", "I'm done", "I'm finished",
    "we have to go", "it's late", "nobody's home", "I smell smoke", "I can't hear you", "it's making a strange noise", "we should save electricity",
    "I have a headache", "the neighbors are complaining", "I need some quiet", "dinner's ready", "it's wasting power", "I'm going out",
    "time for bed", "everybody's gone", "it's been on all day", "I forgot about it", "it's a holiday", "I'm trying to work",
    "a thunderstorm is coming", "I'm in a meeting", "it's annoying",
]  # fmt: skip
DEVICE_ERRORS = [
    "device not found", "not connected", "device offline", "no response", "it does not answer", "no power", "unknown device", "timeout",
    "the plug is off", "the lid is open", "the water tank is empty", "it is already running an update", "overheated", "the battery is empty",
    "the hub is busy",
]  # fmt: skip
DEVICE_REPLIES = [
    "$x $is $s $y.", "Okay, $x $is $s $y.", "$x $is now $s.", "I've turned $s $x $y.", "I've switched $x $s.", "Done, $x $is $s.", "Done.",
    "All right, $x $is $s.", "Sure, $x $is $s now.", "Okay, $x: $s.",
]  # fmt: skip


def device_words(rng, on):
    return {
        "v": one_of(rng, DEVICE_ON if on else DEVICE_OFF),
        "ving": one_of(rng, DEVICE_ON_ING if on else DEVICE_OFF_ING),
        "s": "on" if on else "off",
    }


def called(name):
    """The device as the assistant names it."""
    return name if name in NICKNAMES or (name[0].isupper() and "'s " in name) else "the " + name


def device_reply(rng, text, form, arguments):
    y = where(arguments["room"]) if "room" in arguments else ""
    values = {"x": called(arguments["device"]), "y": y, "s": "on" if arguments["on"] else "off", "is": "are" if arguments["device"] in MANY else "is"}
    return done(rng, "set_device", arguments, text, form, DEVICE_REPLIES, DEVICE_ERRORS, **values)


def in_order(arguments):
    """The arguments in the order of tools.json."""
    return {key: arguments[key] for key in ("device", "room", "on") if key in arguments}


def device(rng):
    on = chance(rng, 0.55)
    values, arguments = device_target(rng)
    commands, statements = DEVICE_COMMANDS, DEVICE_STATEMENTS
    if chance(rng, 0.35):
        commands, statements = (DEVICE_ON_COMMANDS, DEVICE_ON_STATEMENTS) if on else (DEVICE_OFF_COMMANDS, DEVICE_OFF_STATEMENTS)
    pattern, form = style(rng, commands, statements, DEVICE_QUESTIONS)
    if "$d" in pattern and "$w" not in pattern and values["d"] != values["l"]:
        pattern = pattern.replace("$d", "$l")
    text = expand(rng, pattern, **values, **device_words(rng, on))
    if form == "reason":
        text, form = with_reason(rng, text, DEVICE_ON_REASONS if on else DEVICE_OFF_REASONS)
    return device_reply(rng, text, form, in_order(arguments | {"on": on}))


TWO_DEVICES = [
    ("command", "$v $a and $b"), ("command", "$v $a and $b"), ("command", "$v both $a and $b"), ("command", "[turn|switch] $a and $b $s"),
    ("command", "$v $a, and $b too"), ("command", "$v $a and also $b"), ("statement", "$ma and $mb $s"), ("statement", "$ma $s, $mb $s"),
    ("statement", "I'd like $a and $b $s"), ("statement", "I want both $a and $b $s"), ("question", "would you mind $ving $a and $b"),
    ("statement", "$a and $b should be $s"), ("command", "make sure $a and $b are $s"), ("statement", "time to $v $a and $b"),
    ("question", "can we have $a and $b $s"), ("command", "$v $a as well as $b"), ("statement", "let's $v $a and $b"),
    ("statement", "we need $a and $b $s"), ("command", "$v not only $a but also $b"), ("statement", "I forgot to $v $a and $b"),
    ("question", "how about $ving $a and $b"),
]  # fmt: skip
OPPOSITE_DEVICES = [
    ("statement", "$ma $s, $mb $t"), ("statement", "$ma $s and $mb $t"), ("command", "turn $a $s and $b $t"),
    ("command", "switch $s $a and switch $t $b"), ("statement", "I want $a $s and $b $t"), ("statement", "$a $s but $b $t"),
    ("command", "turn $s $a but turn $t $b"), ("question", "can I have $a $s and $b $t"), ("command", "switch $a $s, and switch $b $t"),
]  # fmt: skip
# $a a lamp, $b a device
LIGHT_AND_DEVICE = [
    ("command", "$v $a and $b"), ("command", "$v $b and $a"), ("command", "[turn|switch] $a and $b $s"), ("statement", "$ma and $mb $s"),
    ("statement", "I'd like $a and $b $s"), ("question", "would you mind $ving $a and $b"), ("command", "$v both $b and $a"),
    ("statement", "$mb and $ma $s"), ("command", "make sure $b and $a are $s"), ("statement", "I'm leaving, $v $a and $b"),
    ("statement", "we're home, $v $b and $a"),
]  # fmt: skip


def two_devices(rng):
    (a, ma, first, _), (b, mb, second, _) = device_name(rng), device_name(rng)
    if first == second:
        return two_devices(rng)
    on = chance(rng, 0.5)
    opposite = chance(rng, 0.3)
    form, pattern = one_of(rng, OPPOSITE_DEVICES if opposite else TWO_DEVICES)
    text = expand(rng, pattern, a=a, b=b, ma=ma, mb=mb, t="off" if on else "on", **device_words(rng, on))
    calls = [("set_device", {"device": first, "on": on}), ("set_device", {"device": second, "on": on != opposite})]
    words = ["on" if call[1]["on"] else "off" for call in calls]
    return both(rng, text, form, calls, [called(first) + " " + words[0], called(second) + " " + words[1]], DEVICE_ERRORS)


def both(rng, text, form, calls, names, errors):
    """The request of two calls, that work or, seldom, one of them does not; names say each in words."""
    results = [{"ok": True}, {"ok": True}]
    if chance(rng, 0.04):
        broken = int(chance(rng, 0.5))
        reason = one_of(rng, errors)
        results[broken] = {"error": reason}
        reply = f"Done: {names[1 - broken]}. But not {names[broken]}: {reason}."
    else:
        reply = one_of(rng, ["Done.", "Okay, both done.", f"Done: {names[0]}, {names[1]}.", f"Okay, {names[0]} and {names[1]}."])
    return Request(text, form, calls, results, reply)


def light_and_device(rng):
    text, curt, name, _ = device_name(rng)
    on = chance(rng, 0.5)
    if chance(rng, 0.35):
        a, ma, light, named = "the lights", "lights", {}, "the lights"
    elif chance(rng, 0.3):
        a, ma, light, named = "all the lights", "all lights", {"room": "all"}, "all the lights"
    else:
        r, room = room_phrase(rng)
        noun = one_of(rng, [" light", " lights", " lamp"])
        a, ma, light, named = r + noun, copied(room) + noun, {"room": room}, the(room) + " light"
    form, pattern = one_of(rng, LIGHT_AND_DEVICE)
    words = switch_words(rng, on)
    words["v"] = one_of(rng, ["turn ", "turn ", "switch "]) + words["s"]
    words["ving"] = one_of(rng, ["turning ", "switching "]) + words["s"]
    said = expand(rng, pattern, a=a, b=text, ma=ma, mb=curt, **words)
    calls = [("set_light", light | {"on": on}), ("set_device", {"device": name, "on": on})]
    said_first = {copied(name): said.find(copied(name)), a: said.find(a if a in said else ma)}
    names = [f"{named} {words['s']}", f"{called(name)} {words['s']}"]
    if said_first[copied(name)] < said_first[a]:
        calls.reverse()
        names.reverse()
    return both(rng, said, form, calls, names, DEVICE_ERRORS)


FOLLOW_DEVICE_ON = [
    ("statement", "and on again"), ("command", "turn it on again"), ("command", "switch it back on"), ("statement", "back on"),
    ("statement", "no, back on"), ("statement", "on again"), ("statement", "actually, turn it on again"),
    ("statement", "changed my mind, on again"), ("command", "start it again"), ("statement", "never mind, back on"),
    ("question", "can you turn it on again"), ("statement", "I still need it, back on"), ("command", "turn that on again"),
    ("statement", "oops, on again"), ("statement", "and now back on"), ("statement", "now on again"), ("command", "let it run again"),
    ("statement", "no wait, on"),
]  # fmt: skip
FOLLOW_DEVICE_OFF = [
    ("statement", "and off again"), ("command", "turn it off again"), ("command", "switch it off again"), ("statement", "off again"),
    ("statement", "now off"), ("statement", "ok, off again"), ("statement", "actually, turn it off again"), ("statement", "changed my mind, off"),
    ("command", "stop it again"), ("statement", "never mind, off again"), ("question", "can you turn it off again"),
    ("statement", "I don't need it any more"), ("statement", "and now off"), ("statement", "you can turn it off now"),
    ("statement", "that's enough, off"), ("command", "shut it off again"), ("statement", "no, off"), ("statement", "too loud, turn it off again"),
    ("command", "turn that off again"), ("question", "would you mind turning it off again"),
]  # fmt: skip
FOLLOW_DEVICE_TOO = [
    ("statement", "and $a"), ("question", "and $a"), ("statement", "and $a too"), ("statement", "now $a too"), ("statement", "$a too"),
    ("statement", "$a as well"), ("statement", "also $a"), ("statement", "same for $a"), ("statement", "the same for $a"),
    ("statement", "and also $a"), ("command", "do the same with $a"), ("question", "what about $a"), ("statement", "$ma too"),
    ("statement", "now $a as well"), ("statement", "oh and $a"), ("statement", "plus $a"), ("statement", "same with $a"),
    ("statement", "then $a as well"), ("statement", "and now $a"), ("question", "and $a too"), ("command", "do $a too"),
]  # fmt: skip
FOLLOW_DEVICE_ROOM = [
    ("statement", "and the one $at"), ("statement", "the one $at too"), ("question", "and the one $at"), ("statement", "now the one $at"),
    ("statement", "also the one $at"), ("statement", "the one $at as well"), ("statement", "no, the one $at"), ("statement", "I meant the one $at"),
    ("statement", "sorry, the one $at"), ("statement", "and the one $at too"), ("statement", "same for the one $at"),
    ("question", "what about the one $at"), ("statement", "not that one, the one $at"),
]  # fmt: skip


def follow_device(rng, arguments):
    x = rng.random()
    if x < 0.45:
        on = not arguments["on"]
        form, pattern = one_of(rng, FOLLOW_DEVICE_ON if on else FOLLOW_DEVICE_OFF)
        if arguments["device"] in MANY:
            pattern = re.sub(r"\b(it|that)\b", "them", pattern) if "it" in pattern.split() and "don't" not in pattern else pattern
        return device_reply(rng, pattern, form, in_order(arguments | {"on": on}))
    if x < 0.8 and "room" not in arguments:
        a, ma, name, _ = device_name(rng)
        if name == arguments["device"]:
            return None
        form, pattern = one_of(rng, FOLLOW_DEVICE_TOO)
        return device_reply(rng, expand(rng, pattern, a=a, ma=ma), form, {"device": name, "on": arguments["on"]})
    at, name = room_place(rng)
    if arguments["device"] in MANY or name == arguments.get("room"):
        return None
    form, pattern = one_of(rng, FOLLOW_DEVICE_ROOM)
    return device_reply(rng, expand(rng, pattern, at=at), form, in_order(arguments | {"room": name}))


BLINDS = [("blinds", True)] * 7 + [("shutters", True)] * 3 + [("shades", True), ("blind", False), ("roller blinds", True), ("roller shutters", True),
          ("venetian blinds", True), ("shutter", False), ("window blinds", True), ("window shades", True)]  # fmt: skip
CLOTHS = [("curtains", True)] * 6 + [("drapes", True)] * 3 + [("curtain", False), ("window curtains", True), ("sheer curtains", True),
    ("velvet drapes", True)]
UP_VERBS = ["open", "open", "open", "open", "raise", "raise", "pull up", "roll up", "lift", "put up", "open up", "wind up", "move up", "fully open"]
DOWN_VERBS = [
    "close", "close", "close", "close", "lower", "lower", "shut", "pull down", "roll down", "let down", "put down", "bring down", "fully close",
]  # fmt: skip
UP_ING = ["opening", "opening", "opening", "raising", "pulling up", "rolling up", "lifting"]
DOWN_ING = ["closing", "closing", "closing", "lowering", "shutting", "pulling down", "letting down"]
CLOTH_UP = ["open", "open", "open", "open", "draw back", "pull back", "pull open", "draw open", "open up", "fully open"]
CLOTH_DOWN = ["close", "close", "close", "close", "shut", "pull shut", "draw shut", "pull closed", "fully close"]
CLOTH_UP_ING = ["opening", "opening", "drawing back", "pulling back", "pulling open"]
CLOTH_DOWN_ING = ["closing", "closing", "shutting", "pulling shut", "drawing shut"]

# $v "open" or "close", $s "open" or "closed", or "up" or "down"
BLIND_COMMANDS = [
    "$v $l", "$v $l", "$v $l", "$v $l", "$v $l", "$v $l [now|for me|right now|again|right away|at once|completely|all the way|fully|for a while]",
    "make sure [|that] $l $is $s", "see to it that $l $is $s", "see that $l $is $s", "go ahead and $v $l", "have $l $s", "do me a favor and $v $l",
    "just $v $l", "quickly $v $l", "get $l $s", "$v the $noun $at", "check that $l $is $s", "remember to $v $l", "don't forget to $v $l",
    "go and $v $l", "slowly $v $l", "be so kind and $v $l", "put $l all the way $m", "bring $l all the way $m", "move $l all the way $m",
    "do me a favour and $v $l", "help me and $v $l", "$v $l as far as $it will go", "move $l $m", "$v all $r $many", "put $l $m", "run $l $m",
]  # fmt: skip
BLIND_UP_COMMANDS = [
    "let [the sun|the sunshine|some sun|some sunlight|some daylight|the daylight|the morning sun] into $r", "let the [sun|sunshine|daylight] in",
    "bring [some|the] daylight into $r", "open $l wide", "set $l to open", "set $l to fully open", "open $l all the way",
    "let in [the sun|some daylight] $at", "make way for the sun and open $l", "leave $l open", "keep $l open",
]  # fmt: skip
BLIND_DOWN_COMMANDS = [
    "keep the sun out of $r", "shut out the sun $at", "block [out|] the sun $at", "lock the sun out of $r", "set $l to closed",
    "set $l to fully closed", "close $l all the way", "shut $l tight", "leave $l closed", "keep $l closed", "keep out the sunlight $at",
    "close $l tightly", "shut the $noun $at", "stop the sun from coming into $r",
]  # fmt: skip
BLIND_STATEMENTS = [
    "$k $s", "$k $s", "$k $s", "$k $m", "$k $m", "$k, $s", "$k: $s", "$m with $l", "$noun $s $at", "$noun $m $at", "$at, $v the $noun",
    "$n, $noun $m", "I'd like $l $s", "I want $l $s", "I need $l $s", "I want $l $s [now|right now|again]", "we need $l $s",
    "I'd love to have $l $s", "$l should be $s", "$l must be $s", "$l $needs to be $s", "$l should go $m", "$l can go $m", "$l can go $m now",
    "$l $needs to go $m", "let's have $l $s", "let's $v $l", "time to $v $l", "it's time to $v $l", "you can $v $l now", "you may $v $l",
    "I was hoping you could $v $l", "it would be nice if you could $v $l", "I forgot to $v $l", "I think we should $v $l",
    "somebody needs to $v $l", "I want you to $v $l", "I need you to $v $l", "I'd rather have $l $s", "I'd prefer $l $s", "I want to $v $l",
    "I'd like to $v $l", "my [wife|husband|mother|sister] wants $l $s", "now $v $l", "first $v $l", "maybe $v $l", "$l $m", "$l $s",
    "$l all the way $m", "$k all the way $m", "$k fully $s", "I'd appreciate it if you could $v $l", "you forgot to $v $l", "$r: $noun $m",
    "I'd be happy if you could $v $l", "perhaps you could $v $l", "next, $v $l", "someone forgot to $v $l", "I wish $l were $s",
    "everybody wants $l $s",
]  # fmt: skip
BLIND_UP_STATEMENTS = [
    "I want [some|the] [sun|sunlight|daylight] $at", "I'd like [some|a bit of] [sun|sunlight|daylight] $at", "let's let the [sun|daylight] into $r",
    "let's let some daylight in", "I need some daylight $at", "$r could use some daylight", "$r needs some [daylight|sunlight]",
    "time to let the sun into $r", "we want the sun $at", "let's get some sunlight into $r", "the sun may come into $r", "I miss the daylight $at",
]  # fmt: skip
BLIND_DOWN_STATEMENTS = [
    "the sun is blinding me $at", "the neighbors can see [right|straight|] into $r", "the neighbours can look into $r",
    "I don't want anyone looking into $r", "people can see into $r", "everyone can see into $r from the street", "the sun is too strong $at",
    "the sun is [shining|burning] in my eyes $at", "there's too much sun $at", "I don't want the sun $at", "nobody should see into $r",
    "the sun is heating up $r", "too much sun $at", "the sun hurts my eyes $at", "I'd like some privacy $at", "we need privacy $at",
    "the sun is glaring on the screen $at", "the sunlight $at is too much",
]  # fmt: skip
BLIND_QUESTIONS = [
    "would you mind $ving $l", "do you mind $ving $l", "mind $ving $l", "can [I|we] have $l $s", "could we get $l $s", "may I have $l $s",
    "shall we $v $l", "how about $ving $l", "what about $ving $l", "why don't you $v $l", "why not $v $l", "is it possible to $v $l",
    "would it be possible to $v $l", "any chance you could $v $l", "can $l be $s", "could $l go $m", "can $l go $m", "do you think you could $v $l",
    "could I trouble you to $v $l", "won't you $v $l", "would you be so kind as to $v $l", "would you be able to $v $l", "can somebody $v $l",
    "can I ask you to $v $l", "$k $m, okay", "did you forget to $v $l", "isn't it time to $v $l", "$v $l, will you", "are you able to $v $l",
    "could you see to it that $l $is $s", "could we $v $l", "can you get $l $s", "could you move $l $m", "may I ask you to $v $l",
    "could someone $v $l",
]  # fmt: skip
# $p "20 percent"
BLIND_LEVEL_COMMANDS = [
    "[set|move|bring|put|adjust|take|run] $l to $p", "set $l to $p", "put $l at $p", "open $l to $p", "open $l $p", "open up $l to $p",
    "set $l to $p open", "set the $noun to $p $at", "move the $noun to $p $at", "open the $noun $at to $p", "set the position of $l to $p",
    "get $l to $p", "make $l $p open", "leave $l at $p", "leave $l $p open", "leave $l open at $p", "have $l at $p", "keep $l at $p",
    "change $l to $p", "drive $l to $p", "set $r $many to $p", "position $l at $p", "open $l up to $p", "make sure $l $is at $p",
    "let me have $l at $p", "open $r $many to $p",
]  # fmt: skip
BLIND_LOW_COMMANDS = ["close $l to $p", "lower $l to $p", "bring $l down to $p", "close $l down to $p", "move $l down to $p", "shut $l to $p"]
BLIND_HIGH_COMMANDS = ["raise $l to $p", "bring $l up to $p", "move $l up to $p", "pull $l up to $p", "lift $l to $p"]
BLIND_LEVEL_STATEMENTS = [
    "$k $p", "$k $p", "$k to $p", "$k at $p", "$k, $p", "$k $p open", "$k: $p", "$noun $p $at", "$noun to $p $at", "I'd like $l at $p",
    "I want $l at $p", "I want $l $p open", "I'd like $l $p open", "$l should be at $p", "$l should be $p open", "$l to $p", "$l at $p",
    "let's have $l at $p", "$l $p open", "let's set $l to $p", "$l can go to $p", "I need $l at $p", "$p is enough for $l", "$p for $l",
    "we only need $l $p open", "I'd prefer $l at $p", "you can set $l to $p", "I'd like to have $l at $p", "it would be nice to have $l at $p",
    "time to set $l to $p", "$n $noun $p",
]  # fmt: skip
BLIND_LEVEL_QUESTIONS = [
    "would you mind setting $l to $p", "can we have $l at $p", "can $l go to $p", "how about $p for $l", "can you get $l to $p",
    "could we have $l $p open", "would you open $l to $p", "is it possible to set $l to $p", "can I have $l $p open", "what about $p for $l",
    "can $l be set to $p",
]  # fmt: skip
BLIND_HALF = [
    ("command", "open $l halfway"), ("command", "close $l halfway"), ("command", "set $l to half"), ("command", "put $l halfway [up|down]"),
    ("command", "move $l halfway [up|down]"), ("command", "raise $l halfway"), ("command", "lower $l halfway"),
    ("command", "leave $l half [open|closed]"), ("command", "half [open|close] $l"), ("command", "bring $l half way [up|down]"),
    ("command", "open $l half way"), ("command", "close $l half way"), ("command", "set $l to the middle"), ("command", "make $l half open"),
    ("command", "pull $l halfway [up|down]"), ("command", "have $l half open"), ("statement", "$k halfway"),
    ("statement", "$k half [open|closed|down|up]"), ("statement", "$k halfway [open|up|down]"), ("statement", "$k half way"),
    ("statement", "I'd like $l half [open|closed]"), ("statement", "I want $l halfway [open|up|down]"),
    ("statement", "$l should be half [open|closed]"), ("statement", "let's have $l half open"), ("statement", "$l halfway"),
    ("statement", "halfway with $l"), ("question", "can we have $l half open"), ("question", "would you mind [opening|closing] $l halfway"),
    ("question", "can $l be half open"), ("question", "could you get $l halfway [up|down]"), ("statement", "half is enough for $l"),
    ("statement", "I only want $l half closed"), ("command", "roll $l halfway [up|down]"),
]  # fmt: skip
BLIND_QUARTERS = [
    ("command", "open $l $p"), ("command", "leave $l $p open"), ("command", "set $l to $p open"), ("statement", "I'd like $l $p open"),
    ("statement", "$k $p open"), ("statement", "$l should be $p open"), ("question", "can we have $l $p open"), ("command", "have $l $p open"),
]  # fmt: skip
BLIND_TWO = [
    ("command", "$v the $noun in $a and $b"), ("command", "$v the $noun $pa and $pb"), ("command", "$v $a and $mb $noun"),
    ("statement", "$ma and $mb $noun $m"), ("command", "$v the $noun in both $a and $b"), ("statement", "$noun $m in $a and $b"),
    ("statement", "I'd like the $noun $pa and $pb $s"), ("question", "would you mind $ving the $noun in $a and $b"),
    ("statement", "$a and $b $noun should be $s"), ("statement", "$noun $m $pa and $pb"), ("command", "$v the $noun $pa, and also the ones $pb"),
    ("question", "can we have the $noun $pa and $pb $s"), ("command", "$v $a $noun and $b $noun"),
]  # fmt: skip
BLIND_UP_REASONS = [
    "the sun is up", "good morning", "I'm awake", "it's a lovely day", "I want to look outside", "it's morning", "I just woke up",
    "I need some daylight", "the plants need sun", "the cat wants to look out", "time to get up", "it's snowing and I want to see it",
    "the rain has stopped", "rise and shine",
]  # fmt: skip
BLIND_DOWN_REASONS = OFF_REASONS[:5] + [
    "the sun is blinding me", "the neighbors are staring", "it's getting hot", "I want to take a nap", "a storm is coming", "I can't see the screen",
    "I'm changing",
    "good night", "it's too bright", "the sun is in my eyes", "we're watching a movie", "I want some privacy", "the baby needs to sleep",
    "it's dark outside",
]  # fmt: skip
BLIND_ERRORS = [
    "blinds not found", "the motor is stuck", "no response", "not connected", "device offline", "wind alarm", "no blinds there", "timeout",
    "blocked",
]  # fmt: skip
BLIND_REPLIES = {
    100: ["The $noun $y $is open.", "Okay, the $noun $is open $y.", "Done, the $noun $is open.", "Opening the $noun $y.", "I've opened the $noun $y.",
        "Done."],
    0: ["The $noun $y $is closed.", "Okay, the $noun $is closed $y.", "Done, the $noun $is closed.", "Closing the $noun $y.",
        "I've closed the $noun $y.", "Done."],
    50: ["The $noun $is halfway $y.", "Okay, the $noun $is half open $y.", "Done, halfway.", "The $noun $y $is at 50 percent.", "Half open $y."],
    None: ["The $noun $y $is at $b percent.", "Okay, $b percent.", "Done, the $noun $is at $b percent $y.", "I've set the $noun to $b percent $y.",
        "Set to $b percent $y."],
}


def blind_target(rng, pattern):
    """Blinds as fit the slots of the pattern: (values, room or None)."""
    cloth = chance(rng, 0.33)
    noun, plural = one_of(rng, CLOTHS if cloth else BLINDS)
    values = {"noun": noun, "many": noun if plural else noun + "s", "cloth": cloth}
    values.update({"is": "are", "it": "they", "needs": "need"} if plural else {"is": "is", "it": "it", "needs": "needs"})
    if not re.search(r"\$(l|k|r|n|at)\b", pattern):
        return values, None
    if not re.search(r"\$(r|n)\b", pattern):
        if chance(rng, 0.24):
            l = one_of(rng, ["the ", "the ", "the ", "my ", "our "]) + noun
            return values | {"l": l, "k": one_of(rng, [noun, noun, "the " + noun]), "at": one_of(rng, ["in here", "here"])}, None
        if chance(rng, 0.04):
            room = one_of(rng, ADVERBS[:4])
            return values | {"l": "the " + noun + " " + copied(room), "k": noun + " " + copied(room), "at": copied(room)}, room
    r, room = room_phrase(rng)
    bare, at = copied(room), place(r, room)
    l = one_of(rng, [r + " " + noun, r + " " + noun, r + " " + noun, "the " + noun + " " + at, "the " + noun + " " + at])
    if plural and chance(rng, 0.08):
        l = one_of(rng, ["all the " + noun + " " + at, "both " + noun + " " + at, "all of the " + noun + " " + at])
    k = one_of(rng, [bare + " " + noun, bare + " " + noun, noun + " " + bare, noun + " " + at, noun + " in " + bare, bare + ", " + noun])
    return values | {"l": l, "k": k, "at": at, "r": r, "n": bare}, room


def blind_words(rng, up, cloth):
    if cloth:
        verbs, ing = (CLOTH_UP, CLOTH_UP_ING) if up else (CLOTH_DOWN, CLOTH_DOWN_ING)
    else:
        verbs, ing = (UP_VERBS, UP_ING) if up else (DOWN_VERBS, DOWN_ING)
    state = "open" if up else one_of(rng, ["closed", "closed", "shut"])
    way = state if cloth else "up" if up else "down"
    return {"v": one_of(rng, verbs), "ving": one_of(rng, ing), "s": one_of(rng, [state, state, way]), "m": way}


def blind_reply(rng, text, form, arguments, noun):
    position = arguments["position"]
    y = where(arguments["room"]) if "room" in arguments else ""
    values = {"noun": noun, "y": y, "b": str(position), "is": "are" if noun.endswith("s") else "is"}
    return done(rng, "set_blinds", arguments, text, form, BLIND_REPLIES.get(position, BLIND_REPLIES[None]), BLIND_ERRORS, **values)


def blinds(rng):
    x = rng.random()
    words, reasons = {}, MOOD_REASONS
    if x < 0.62:
        up = chance(rng, 0.5)
        position, reasons = (100, BLIND_UP_REASONS) if up else (0, BLIND_DOWN_REASONS)
        lists = (BLIND_COMMANDS, BLIND_STATEMENTS)
        if chance(rng, 0.2):
            lists = (BLIND_UP_COMMANDS, BLIND_UP_STATEMENTS) if up else (BLIND_DOWN_COMMANDS, BLIND_DOWN_STATEMENTS)
        pattern, form = style(rng, *lists, BLIND_QUESTIONS)
    elif x < 0.74:
        position = 50
        form, pattern = one_of(rng, BLIND_HALF)
    elif x < 0.78:
        words["p"], position = one_of(rng, [("{a quarter}", 25), ("{three quarters}", 75), ("{one quarter}", 25)])
        form, pattern = one_of(rng, BLIND_QUARTERS)
    else:
        words["p"], position = percent(rng)
        commands = BLIND_LEVEL_COMMANDS
        if chance(rng, 0.3):
            commands = BLIND_LOW_COMMANDS if position < 60 else BLIND_HIGH_COMMANDS
        pattern, form = style(rng, commands, BLIND_LEVEL_STATEMENTS, BLIND_LEVEL_QUESTIONS)
    values, room = blind_target(rng, pattern)
    cloth = values.pop("cloth")
    text = expand(rng, pattern, **values, **words, **blind_words(rng, position == 100, cloth))
    if form == "reason":
        text, form = with_reason(rng, text, reasons)
    return blind_reply(rng, text, form, ({} if room is None else {"room": room}) | {"position": position}, values["noun"])


def blinds_two(rng):
    up = chance(rng, 0.5)
    cloth = chance(rng, 0.3)
    noun = one_of(rng, ["curtains", "drapes"] if cloth else ["blinds", "blinds", "shutters", "shades"])
    values, names = rooms_apart(rng, 2)
    form, pattern = one_of(rng, BLIND_TWO)
    text = expand(rng, pattern, noun=noun, **values, **blind_words(rng, up, cloth))
    calls = [("set_blinds", {"room": name, "position": 100 if up else 0}) for name in names]
    state = "open" if up else "closed"
    return both(rng, text, form, calls, [f"{the(name)} {noun} {state}" for name in names], BLIND_ERRORS)


FOLLOW_ROOM = [
    ("statement", "and $r"), ("question", "and $r"), ("statement", "now $r"), ("statement", "now $r too"), ("statement", "and $at"),
    ("question", "and $at"), ("statement", "and $at too"), ("statement", "$r too"), ("statement", "$n too"), ("statement", "same $at"),
    ("statement", "the same $at"), ("statement", "same for $r"), ("statement", "the same for $r"), ("statement", "also $at"),
    ("statement", "$at too"), ("statement", "$at as well"), ("command", "do the same $at"), ("command", "do $r too"), ("question", "what about $r"),
    ("question", "how about $r"), ("statement", "oh and $r"), ("statement", "and now $r"), ("statement", "I want the same $at"),
    ("question", "can I have the same $at"), ("statement", "I'd like that $at too"), ("command", "do that $at as well"), ("statement", "plus $r"),
    ("statement", "$n as well"), ("statement", "and also $r"), ("statement", "then $r"), ("statement", "same thing $at"), ("statement", "no, $r"),
    ("statement", "sorry, I meant $r"), ("statement", "I meant $r"), ("statement", "no, $at"), ("statement", "wrong room, $r"),
]  # fmt: skip
FOLLOW_BLINDS_OPEN = [
    ("command", "open [it|them] again"), ("statement", "and open again"), ("statement", "now open [it|them] again"), ("statement", "back up"),
    ("statement", "and up again"), ("statement", "actually, open [it|them] again"), ("statement", "no, open"),
    ("statement", "changed my mind, open [it|them]"), ("statement", "up again"), ("question", "can you open [it|them] again"),
    ("command", "put [it|them] back up"), ("statement", "too dark, open [it|them] again"), ("statement", "now all the way up"),
    ("question", "would you mind opening [it|them] again"), ("statement", "and back up"), ("statement", "never mind, up again"),
]  # fmt: skip
FOLLOW_BLINDS_CLOSE = [
    ("command", "close [it|them] again"), ("statement", "and close [it|them] again"), ("statement", "now close [it|them] again"),
    ("statement", "back down"), ("statement", "and down again"), ("statement", "actually, close [it|them] again"), ("statement", "no, closed"),
    ("statement", "changed my mind, close [it|them]"), ("statement", "down again"), ("question", "can you close [it|them] again"),
    ("command", "put [it|them] back down"), ("statement", "too bright, close [it|them] again"), ("statement", "now all the way down"),
    ("question", "would you mind closing [it|them] again"), ("statement", "and back down"), ("command", "shut [it|them] again"),
]  # fmt: skip
FOLLOW_BLINDS_LEVEL = [
    ("command", "make it $p"), ("statement", "now $p"), ("statement", "no, $p"), ("statement", "$p instead"), ("command", "set [it|them] to $p"),
    ("statement", "rather $p"), ("statement", "actually $p"), ("statement", "and now $p"), ("command", "make that $p"), ("statement", "to $p"),
    ("statement", "$p is better"), ("question", "how about $p"), ("command", "move [it|them] to $p"), ("statement", "only $p"),
    ("statement", "I said $p"), ("statement", "better $p"), ("command", "try $p"), ("statement", "just $p"),
]  # fmt: skip
FOLLOW_BLINDS_HALF = [
    ("statement", "only halfway"), ("statement", "no, halfway"), ("statement", "just halfway"), ("command", "make it halfway"),
    ("statement", "half is enough"), ("statement", "rather halfway"), ("statement", "halfway, I mean"), ("statement", "actually only half"),
    ("statement", "and now halfway"),
]  # fmt: skip


def follow_room(rng, here):
    """Another room: (text, form, name), or None if it is the same one."""
    r, name = room_phrase(rng)
    form, pattern = one_of(rng, FOLLOW_ROOM if here else FOLLOW_ROOM[:-5])
    return None if name == here else (expand(rng, pattern, r=r, n=copied(name), at=place(r, name)), form, name)


def follow_blinds(rng, arguments):
    here = {"room": arguments["room"]} if "room" in arguments else {}
    position = arguments["position"]
    x = rng.random()
    if x < 0.45:
        found = follow_room(rng, arguments.get("room"))
        if found is None:
            return None
        text, form, name = found
        return blind_reply(rng, text, form, {"room": name, "position": position}, "blinds")
    if x < 0.72:
        up = position < 30 or position < 70 and chance(rng, 0.5)
        form, pattern = one_of(rng, FOLLOW_BLINDS_OPEN if up else FOLLOW_BLINDS_CLOSE)
        return blind_reply(rng, expand(rng, pattern), form, here | {"position": 100 if up else 0}, "blinds")
    if x < 0.8:
        form, pattern = one_of(rng, FOLLOW_BLINDS_HALF)
        return None if position == 50 else blind_reply(rng, expand(rng, pattern), form, here | {"position": 50}, "blinds")
    text, level = percent(rng)
    form, pattern = one_of(rng, FOLLOW_BLINDS_LEVEL)
    return None if level == position else blind_reply(rng, expand(rng, pattern, p=text), form, here | {"position": level}, "blinds")


# $t "21 degrees", $x the same or "21" alone, $h "the heating"
TEMPERATURE_COMMANDS = [
    "set $h to $x", "set $h to $x", "set $h $at to $x", "set $h to $x $at", "set $h to $x $w",
    "[put|turn|adjust|change|switch|move|bring] $h to $x", "put $h on $x", "set $h at $x", "[put|turn|adjust|change] $h $at to $x",
    "[put|turn|adjust|change] $h to $x $at", "make it $t $w", "make it $t $at", "set the temperature to $x $w", "set the temperature $at to $x",
    "set the temperature $at at $x", "set the temperature of $r to $x", "set $r to $t", "set $r temperature to $x", "make $r $t", "bring $r to $t",
    "get $r to $t", "keep $r at $t", "hold $r at $t", "keep it at $t $w", "hold the temperature at $x $w", "change the temperature to $x $w",
    "change the temperature $at to $x", "adjust the temperature to $x $w", "give me $t $w", "give us $t $at", "let me have $t $at",
    "put it on $t $w", "set it to $t $w", "get it to $t $w", "set $r thermostat to $x", "set $r heating to $x", "put $r heating on $x",
    "regulate $r to $t", "go to $t $w", "maintain $t $w", "make sure it's $t $at", "make sure $r is at $t", "see that it's $t $at",
    "program $h to $x", "tune $h to $x", "have $r at $t", "have it $t $at", "leave $h on $x", "run $h at $x", "set temperature $x $w",
    "set thermostat to $x $w", "set heating to $x $w", "set heat to $x $w", "make the temperature $x $w", "make it exactly $t $w", "aim for $t $w",
    "go for $t $at", "keep $h at $x", "fix the temperature at $x $w", "get me $t $at",
]  # fmt: skip
WARM_COMMANDS = [
    "heat $r to $t", "heat $r up to $t", "heat up $r to $t", "warm $r to $t", "warm up $r to $t", "warm $r up to $t", "turn $h up to $x",
    "turn up $h to $x", "raise the temperature to $x $w", "raise the temperature $at to $x", "bring $r up to $t", "turn $h up to $x $at",
    "heat it up to $t $w", "turn the heat up to $x $w", "increase the temperature to $x $w", "crank $h up to $x", "warm it up to $t $w",
    "push $h up to $x", "get $r warm, $t", "let it get $t $at", "preheat $r to $t", "up the temperature to $x $w", "crank the heat up to $x $w",
    "turn it up to $t $w",
]  # fmt: skip
COOL_COMMANDS = [
    "cool $r to $t", "cool $r down to $t", "cool down $r to $t", "turn $h down to $x", "turn down $h to $x", "lower the temperature to $x $w",
    "drop $h to $x", "lower the temperature $at to $x", "bring $r down to $t", "turn $h down to $x $at", "reduce the temperature to $x $w",
    "reduce $h to $x", "lower $h to $x", "let $r cool down to $t", "take $h down to $x", "turn the heat down to $x $w",
    "drop the temperature to $x $w", "cool it down to $t $w", "turn it down to $t $w",
]  # fmt: skip
TEMPERATURE_STATEMENTS = [
    "$b $x", "$b $x $w", "$b to $x", "$b to $x $w", "$b at $x $w", "$b on $x", "$b $at $x", "$b $at to $x", "$t $at", "$t $at", "$t $w",
    "$t for $r", "$n $t", "$n to $t", "$n at $t", "$n $b $x", "$n $b to $x", "$n, $t", "$n: $t", "temperature $x $w", "temperature to $x $w",
    "temperature $at $x", "$at $t", "I'd like $t $w", "I'd like $t $at", "I'd like it $t $w", "I'd like it to be $t $at", "I want $t $at",
    "I want it $t $at", "I want it to be $t $w", "I need $t $at", "I'd like $r at $t", "I want $r at $t", "$r should be $t", "$r should be at $t",
    "it should be $t $at", "it should be $t $w", "it needs to be $t $at", "$r needs to be $t", "we need $t $at", "we want $t $at",
    "let's have $t $at", "let's set $h to $x", "let's make it $t $w", "let's go for $t $at", "let's say $t $w",
    "$t would be [nice|perfect|good|comfortable|enough] $at", "$t is enough $at", "$t will do $at", "I'd prefer $t $w", "I'd prefer $r at $t",
    "I'd rather have $t $at", "I'd love $t $at", "$h should be at $x", "$h should be set to $x", "I'd like $h at $x", "I want $h at $x", "$h to $x",
    "$h on $x", "$h at $x", "time for $t $at", "time to set $h to $x", "you can set $h to $x", "I want you to set $h to $x",
    "it would be nice to have $t $at", "the temperature $at should be $x", "I'm most comfortable at $t $w",
    "my [wife|husband|mother|grandma] wants $t $at", "the doctor says $t $at", "it has to be $t $at", "$t, that's what I want $at",
    "I'd be happy with $t $at", "I'd like the temperature $at at $x", "I want the temperature at $x", "the temperature should be $x", "$r wants $t",
    "I'd like to set $h to $x", "I was hoping for $t $at", "for $r, $t", "okay, $t $at", "we agreed on $t $at", "I could do with $t $at",
]  # fmt: skip
WARM_STATEMENTS = [
    "it's [cold|freezing|chilly|too cold|so cold|very cold|a bit chilly] $w, [make it|set it to|turn the heating up to|I want|heat it to] $t",
    "it's too cold $at, $t would be better", "I'm [freezing|cold|shivering], [make it|turn the heating up to|set the heating to|I need] $t",
    "$r is too cold, make it $t", "$r is freezing, set it to $t", "my feet are cold, make it $t $w", "I want it warmer $at, $t",
    "it should be warmer $at, $t", "brr, $t $w", "the guests are cold, $t $at", "too cold, make it $t", "$h can go up to $x",
    "I'd like it warmed up to $t $at", "let's warm $r up to $t", "let's heat $r to $t", "$r needs to be heated to $t",
]  # fmt: skip
COOL_STATEMENTS = [
    "it's [hot|too hot|too warm|boiling|so hot|very warm|stuffy] $w, [make it|set it to|turn it down to|I want|$t is enough, so make it] $t",
    "I'm sweating, make it $t $w", "I'm [hot|boiling|too warm|melting], [make it|turn the heating down to|set it to] $t",
    "$r is too warm, make it $t", "$r is too hot, $t is enough", "too hot, make it $t", "I want it cooler $at, $t", "it should be cooler $at, $t",
    "$h can go down to $x", "we're leaving, heating down to $x", "let's cool $r down to $t", "I sleep better at $t, so set $r to that",
    "we're saving energy, $t is enough $at", "we're away for the weekend, heating to $x",
]  # fmt: skip
TEMPERATURE_QUESTIONS = [
    "can we have $t $at", "could I have $t $at", "can I get $t $at", "could we make it $t $at", "would you mind setting $h to $x",
    "would you mind making it $t $w", "how about $t $at", "how about $t $w", "what about $t for $r", "can $r be $t", "can you get $r to $t",
    "could you get it to $t $at", "is $t possible $at", "is it possible to have $t $at", "can it be $t $at", "shall we say $t $at",
    "shall we set $h to $x", "may I have $t $at", "why don't we set $h to $x", "would you set $h to $x for me", "can you do $t $at",
    "could you keep $r at $t", "do you think you could make it $t $at", "any chance of $t $at", "would it be possible to set $h to $x",
    "can the temperature be $x $at", "can you put $h on $x", "could $h go to $x", "could you bring $r to $t", "will you set $h to $x",
    "mind setting $h to $x", "are you able to set $r to $t", "can we get $r to $t", "could the temperature be $x $w",
]  # fmt: skip
HEATINGS = [
    ("heating", 6), ("thermostat", 6), ("temperature", 3), ("heat", 2), ("radiator", 1), ("radiators", 1), ("central heating", 1),
    ("climate control", 1), ("room temperature", 1), ("heating system", 1), ("underfloor heating", 1), ("floor heating", 1),
]  # fmt: skip
HEATINGS = [name for name, weight in HEATINGS for _ in range(weight)]
TEMPERATURE_TWO = [
    ("command", "set $a to $t and $b to $u"), ("command", "set the heating to $t $pa and $u $pb"), ("statement", "$t $pa and $u $pb"),
    ("statement", "$ma $t, $mb $u"), ("command", "make it $t $pa and $u $pb"), ("statement", "I'd like $t $pa and $u $pb"),
    ("statement", "heating $t $pa, $u $pb"), ("command", "heat $a to $t and $b to $u"), ("command", "set $a and $b to $t"),
    ("command", "make it $t in $a and $b"), ("statement", "$t in $a and $b"), ("statement", "$ma and $mb $t"),
    ("command", "set the heating in $a and $b to $t"), ("statement", "I want $t $pa and $pb"), ("question", "can we have $t in both $a and $b"),
    ("command", "bring $a and $b to $t"), ("question", "can I have $t $pa and $u $pb"), ("command", "keep $a at $t and $b at $u"),
]  # fmt: skip
TEMPERATURE_REASONS = [
    "I'm home", "we're leaving", "it's winter", "guests are coming", "it's late", "good night", "good morning", "the baby is here",
    "grandma is visiting", "I'm working from home", "I'm going to bed", "the heating bill is too high", "I have a cold", "we're back",
    "it's autumn", "I'm not feeling well", "we have visitors", "it's snowing", "I'm taking a shower", "the plants need it",
    "we want to save energy", "the window was open", "the cat is sick", "I can't sleep",
]  # fmt: skip
TEMPERATURE_ERRORS = [
    "thermostat not found", "no thermostat there", "not connected", "no response", "the window is open", "the heating is off", "timeout",
    "unknown room", "the battery is empty", "the heating is locked", "sensor error",
]  # fmt: skip
TEMPERATURE_REPLIES = [
    "$t degrees $y.", "Okay, $t degrees $y.", "The heating is set to $t degrees $y.", "Done, $t degrees $y.", "I've set it to $t degrees $y.",
    "Set to $t degrees $y.", "The thermostat $y is at $t degrees.", "All right, $t degrees it is.", "It will be $t degrees $y.",
]  # fmt: skip


def degrees(rng):
    """(text with its unit, text that may lack it, value)."""
    x = rng.random()
    if x < 0.55:
        n = rng.randint(15, 26)
    elif x < 0.75:
        n = rng.randint(14, 26) + 0.5
    elif x < 0.84:
        n = rng.randint(58, 82)
    elif x < 0.9:
        n = rng.randint(100, 299) / 10
        n = int(n) if n == int(n) else n
    else:
        n = rng.randint(1, 100)
    if chance(rng, 0.33):
        whole, hyphen = int(n), one_of(rng, ["-", "-", " "])
        text = in_words(whole, hyphen)
        if n != whole:
            tenth = round(10 * (n - whole))
            text += " and a half" if tenth == 5 and chance(rng, 0.6) else " point " + in_words(tenth)
        text = copied(text)
        full = text + one_of(rng, [" degrees", " degrees", " degrees", " degrees celsius" if n < 40 else " degrees"])
    else:
        text = copied(str(n))
        full = text + one_of(rng,
            [" degrees", " degrees", " degrees", " degrees", "°", "°", " degrees Celsius" if n < 40 else " degrees", "°C" if n < 40 else "°"])
    if n == 1:
        full = full.replace("degrees", "degree")
    return full, (text if chance(rng, 0.5) else full), n


def temperature_reply(rng, text, form, arguments):
    y = where(arguments["room"]) if "room" in arguments else ""
    return done(rng, "set_temperature", arguments, text, form, TEMPERATURE_REPLIES, TEMPERATURE_ERRORS, t=str(arguments["degrees"]), y=y)


def temperature_words(rng, pattern):
    """Values of $h, $b (bare $h), $w (a place or nothing), $at, $r, $n; and the room or None."""
    bare = one_of(rng, HEATINGS)
    values = {"h": one_of(rng, ["the ", "the ", "the ", "the ", "my ", "our "]) + bare, "b": bare, "w": ""}
    if not re.search(r"\$(r|n|at|w|h)\b", pattern):
        return values, None
    if not re.search(r"\$(r|n)\b", pattern) and chance(rng, 0.4):
        here = one_of(rng, ["in here", "in here", "here"])
        return values | {"at": here, "w": one_of(rng, ["", "", here])}, None
    if re.search(r"\$(at|w|r|n)\b", pattern):
        if not re.search(r"\$(r|n)\b", pattern) and chance(rng, 0.04):
            room = one_of(rng, ADVERBS[:4])
            return values | {"at": copied(room), "w": copied(room)}, room
        r, room = room_phrase(rng)
        at = place(r, room)
        return values | {"r": r, "n": copied(room), "at": at, "w": at}, room
    r, room = room_phrase(rng)
    values["h"] = one_of(rng, [r + " " + bare, "the " + bare + " " + place(r, room)])
    return values, room


def temperature(rng):
    full, short, n = degrees(rng)
    lists = (TEMPERATURE_COMMANDS, TEMPERATURE_STATEMENTS)
    if chance(rng, 0.3):
        if 20 <= n < 35 or n > 68:
            lists = (WARM_COMMANDS, WARM_STATEMENTS)
        elif n < 22 or 35 <= n < 68:
            lists = (COOL_COMMANDS, COOL_STATEMENTS)
    pattern, form = style(rng, *lists, TEMPERATURE_QUESTIONS)
    values, room = temperature_words(rng, pattern)
    text = expand(rng, pattern, t=full, x=short, **values)
    if form == "reason":
        text, form = with_reason(rng, text, TEMPERATURE_REASONS)
    return temperature_reply(rng, text, form, ({} if room is None else {"room": room}) | {"degrees": n})


def temperature_two(rng):
    (full, _, n), (other, _, m) = degrees(rng), degrees(rng)
    values, names = rooms_apart(rng, 2)
    form, pattern = one_of(rng, TEMPERATURE_TWO)
    text = expand(rng, pattern, t=full, u=other, **values)
    each = [n, m if "$u" in pattern else n]
    calls = [("set_temperature", {"room": name, "degrees": value}) for name, value in zip(names, each)]
    return both(rng, text, form, calls, [f"{value} degrees {where(name)}" for name, value in zip(names, each)], TEMPERATURE_ERRORS)


FOLLOW_DEGREES = [
    ("command", "make it $t"), ("command", "make that $t"), ("command", "make it $t instead"), ("statement", "no, $t"), ("statement", "rather $t"),
    ("statement", "$t instead"), ("statement", "actually $t"), ("statement", "better $t"), ("command", "set it to $t"), ("statement", "now $t"),
    ("statement", "and now $t"), ("statement", "hm, $t"), ("statement", "I said $t"), ("statement", "let's try $t"), ("command", "try $t"),
    ("statement", "$t is better"), ("question", "how about $t"), ("statement", "$t"), ("command", "change it to $t"),
    ("statement", "I'd prefer $t"), ("question", "can you make it $t"), ("statement", "wait, $t"), ("statement", "only $t"),
    ("statement", "sorry, I meant $t"), ("statement", "$t is enough"), ("statement", "let's say $t"), ("question", "or $t"),
    ("command", "make that $t after all"),
]  # fmt: skip
FOLLOW_WARMER = [
    "warmer, $t", "a bit more, $t", "still cold, $t", "it's still too cold, make it $t", "higher, $t", "up to $t", "turn it up to $t",
    "not warm enough, $t",
]  # fmt: skip
FOLLOW_COOLER = [
    "cooler, $t", "a bit less, $t", "too warm, $t", "that's too hot, make it $t", "lower, $t", "down to $t", "turn it down to $t", "too much, $t",
]  # fmt: skip


def follow_temperature(rng, arguments):
    here = {"room": arguments["room"]} if "room" in arguments else {}
    if chance(rng, 0.45):
        found = follow_room(rng, arguments.get("room"))
        if found is None:
            return None
        text, form, name = found
        if form != "question" and chance(rng, 0.25):
            full, _, n = degrees(rng)
            r = copied(name)
            text = expand(rng, one_of(rng, ["and $t $at", "and $r $t", "but $t $at", "and $t for $r", "$t $at", "now $t $at"]), t=full, r=r,
                at="in " + r)
            if " in {" in text or not name[0].isupper():
                text = text.replace(r, the(name).replace(name, r) if not the(name).startswith("your") else "my " + r)
            return temperature_reply(rng, text, "statement", {"room": name, "degrees": n})
        return temperature_reply(rng, text, form, {"room": name, "degrees": arguments["degrees"]})
    full, short, n = degrees(rng)
    if n == arguments["degrees"]:
        return None
    if chance(rng, 0.3):
        pattern = one_of(rng, FOLLOW_WARMER if n > arguments["degrees"] else FOLLOW_COOLER)
        form = "command" if pattern.startswith("turn") else "statement"
    else:
        form, pattern = one_of(rng, FOLLOW_DEGREES)
    return temperature_reply(rng, expand(rng, pattern, t=one_of(rng, [full, short])), form, here | {"degrees": n})


REQUESTS = {
    "set_device": (10, device),
    "set_device two": (1.5, two_devices),
    "set_light and set_device": (0.8, light_and_device),
    "set_blinds": (6, blinds),
    "set_blinds two": (0.6, blinds_two),
    "set_temperature": (6, temperature),
    "set_temperature two": (0.6, temperature_two),
}
FOLLOWS = {"set_device": follow_device, "set_blinds": follow_blinds, "set_temperature": follow_temperature}
