"""Requests to set and to cancel timers, and what follows them.

`duration(rng)` knows the ways to say a length of time, `label(rng)` what a timer may be for.
"""

from grammar import Request, chance, copied, expand, in_words, invented, number, one_of


def listed(text):
    return text.strip().replace("\n", "|").split("|")


FOODS = listed("""
pasta|spaghetti|penne|macaroni|lasagna|ravioli|tortellini|gnocchi|noodles|ramen|udon|rice|brown rice|basmati|risotto|couscous|quinoa
bulgur|lentils|chickpeas|beans|black beans|green beans|peas|corn|broccoli|cauliflower|carrots|asparagus|spinach|kale|beets|potatoes
sweet potatoes|baked potatoes|mashed potatoes|fries|chips|oven chips|hash browns|wedges|eggs|egg|boiled eggs|soft-boiled eggs|hard-boiled eggs
poached eggs|scrambled eggs|omelette|quiche|frittata|bacon|sausages|hot dogs|burgers|meatballs|meatloaf|steak|steaks|ribs|brisket|roast
roast beef|pork chops|ham|gammon|lamb|lamb chops|chicken|roast chicken|chicken wings|chicken breasts|drumsticks|nuggets|turkey|duck|goose
fish|fish fingers|fish sticks|salmon|cod|trout|tuna|shrimp|prawns|mussels|scallops|lobster|crab cakes|pizza|frozen pizza|calzone|pie|apple pie
pumpkin pie|shepherd's pie|cottage pie|pot pie|pasties|sausage rolls|casserole|stew|beef stew|chili|curry|goulash|dal|soup|tomato soup
chicken soup|broth|stock|gravy|tomato sauce|bolognese|pesto|mac and cheese|fish and chips|tofu|falafel|tempeh|dumplings|spring rolls|samosas
tacos|burritos|enchiladas|quesadillas|nachos|tortillas|naan|pita|flatbread|bread|sourdough|baguette|focaccia|garlic bread|banana bread
cornbread|toast|rolls|buns|bagels|croissants|pretzels|dough|pizza dough|pastry|biscuits|scones|muffins|cupcakes|cookies|brownies|gingerbread
shortbread|macarons|meringue|cake|cheesecake|chocolate cake|carrot cake|birthday cake|sponge|strudel|crumble|tart|flan|custard|pudding
rice pudding|Yorkshire pudding|souffle|pancakes|waffles|crepes|porridge|oatmeal|granola|jam|marmalade|caramel|fudge|jelly|popcorn|chestnuts
almonds|tea|green tea|black tea|herbal tea|peppermint tea|chamomile|matcha|iced tea|coffee|french press|cold brew|cocoa|hot chocolate|milk
baby's bottle|bottles|tomatoes|peppers|onions|caramelized onions|mushrooms|eggplant|aubergine|zucchini|courgettes|squash|pumpkin|parsnips
brussels sprouts|cabbage|artichokes|leeks|turnips|ratatouille|moussaka|paella|jambalaya|gumbo|stuffing|polenta|grits|yogurt|kombucha|marinade
kimchi|pickles|dinner|lunch|breakfast|supper|sauce|kebabs|schnitzel|pot roast|pulled pork|tofu scramble|ice cream|sorbet|wine|beer|pierogi
""")
EVENTS = listed("""
nap|power nap|walk|run|jog|bath|shower|face mask|hair mask|hair dye|break|coffee break|lunch break|meeting|call|conference call|stand-up|exam
practice test|quiz|workout|plank|cooldown|warm-up|bike ride|swim|treadmill|sauna|hot tub|ice bath|massage|foot bath|game|chess game|match|round
video game|movie|show|presentation|speech|interview|lesson|piano lesson|study session|work session|sprint|pomodoro
""")
THINGS = listed("""
washing machine|laundry|dryer
dishwasher|tumble dryer|sprinkler|lawn sprinkler|pool|pool pump|garden hose|grill|barbecue|smoker|slow cooker|pressure cooker|air fryer
kettle|oven|freezer|wine cooler|parking meter|parking|car charger|charger|phone|bus|train|taxi|delivery|babysitter|baby|dog|puppy|cat|glue|paint
varnish|nail polish|plaster|epoxy|concrete|first coat|second coat|stain remover|bleach|wash|rinse cycle|spin cycle|time-out|hide and seek
treasure hunt|board game|eye drops|inhaler|thermometer|injection|medicine|ice pack|heating pad|contact lenses|3D printer|print job|download
backup|update|experiment|photo shoot|kiln|candle|fire|robot|first batch|second batch|last batch|towels|sheets|whites|delicates
""")
TASKS = listed("""
yoga|meditation|homework|reading|reading time|screen time|bedtime|story time|quiet time|playtime|tooth brushing|brushing teeth|piano practice
guitar practice|violin practice|study time|studying|revision|math homework|spelling|push-ups|sit-ups|squats|burpees|stretching|pilates|cardio
interval training|boxing|dance practice|rest|recess|cleaning|tidying up|vacuuming|ironing|weeding|gardening|watering the plants|dusting
washing up|doing the dishes|deep work|focus time|focus|email|paperwork|writing|journaling|drawing|painting|knitting|sewing|gaming|video games
TV time|charades|karaoke|breathing exercises|prayer|feeding the cat|walking the dog|defrosting|proofing|rising|resting the meat|steeping
marinating|soaking|chilling|cooling|preheating|physio|tummy time|bath time|snack time|lights out|cooking|baking|debate practice|speed dating
""")
MANNERS = listed("""
frozen|spicy|fresh|leftover|vegan|crispy|big|small|large|second|first|third|last|stuffed|smoked|grilled|steamed|roasted|fried|baked|homemade
sweet|red|green|white|yellow|Sunday|Christmas|birthday|party|gluten-free|extra|blue|cold|warm|quick|slow|instant|mini|giant|lazy|purple
wholewheat|creamy|lemon|garlic|ginger|honey|pepper|cheese|Thai|Greek|Polish|Korean
""")
OWNERS = listed("""
Leo's|Mia's|Anna's|Tom's|Ella's|Grandma's|Grandpa's|Dad's|Mum's|Mom's|Noah's|Lucy's|Omar's|Priya's|Ben's|Kim's|Freya's|Jonas's|Zoe's|Max's
Aisha's|Hugo's|Rosie's|Theo's|Nina's|Carlos's|Ingrid's|Wei's|Sam's|Maya's
""")
KINDS = {"food": FOODS, "event": EVENTS, "thing": THINGS, "task": TASKS}
GROUPS = ["kids'", "boys'", "girls'", "twins'", "children's", "baby's", "dog's", "cat's", "neighbor's", "guests'", "team's"]
SINGULAR = {"couscous", "asparagus", "goose", "pasta", "quiche", "bus", "french press", "schnitzel"}


def new_word(rng):
    """An invented word that is no article."""
    word = invented(rng)
    return "tharn" if word in ("the", "a", "an", "my", "our", "some") else word


def label(rng):
    """(kind, text with its article and braces, value) of what a timer is for."""
    kind = one_of(rng, ["food"] * 6 + ["thing", "event", "task"])
    value = one_of(rng, KINDS[kind])
    dice = rng.random()
    if dice < 0.04:
        kind, value = "food", new_word(rng) + one_of(rng, ["", "", " " + one_of(rng, FOODS)])
    elif dice < 0.11 and kind == "food":
        value = one_of(rng, MANNERS) + " " + value
    elif dice < 0.13:
        kind, value = "thing", one_of(rng, MANNERS) + " " + one_of(rng, [new_word(rng), one_of(rng, THINGS)])
    elif dice < 0.165 and kind != "task":
        value = one_of(rng, OWNERS) + " " + value
        value = value.lower() if chance(rng, 0.1) else value
        return kind, copied(value), value
    elif dice < 0.19 and kind != "task" and "'s" not in value:
        value = one_of(rng, GROUPS) + " " + value
        return kind, "the " + copied(value), value
    if kind == "food":
        article = one_of(rng, ["the ", "the ", "the ", "my ", "", "our "])
    elif kind != "task":
        article = one_of(rng, ["the ", "the ", "my ", "my ", "our "])
        if kind == "event" and chance(rng, 0.3):
            article = "an " if value[0] in "aeio" else "a "
    else:
        article = ""
    return kind, article + copied(value), value


def plural(value):
    last = value.split(" ")[-1]
    return last.endswith("s") and not last.endswith("ss") and last not in SINGULAR and value not in SINGULAR


HOURS, MINUTES, SECONDS = ["hours", "hours", "hours", "hrs"], ["minutes"] * 6 + ["mins", "min"], ["seconds"] * 5 + ["secs", "sec"]
COMMON_MINUTES = [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 11, 12, 13, 14, 15, 15, 16, 17, 18, 20, 20, 22, 25, 30, 30, 35, 40, 45, 50, 55, 60, 75, 90]
COMMON_SECONDS = [5, 10, 10, 15, 20, 20, 25, 30, 30, 30, 35, 40, 45, 45, 50, 60, 60, 75, 90, 90, 100, 120]


def some_minutes(rng):
    dice = rng.random()
    if dice < 0.55:
        return one_of(rng, COMMON_MINUTES)
    return rng.randint(1, 60) if dice < 0.85 else rng.randint(1, 130) if dice < 0.95 else rng.randint(100, 999)


def some_seconds(rng):
    dice = rng.random()
    return one_of(rng, COMMON_SECONDS) if dice < 0.5 else rng.randint(1, 120) if dice < 0.93 else rng.randint(100, 999)


def some_hours(rng):
    dice = rng.random()
    return rng.randint(1, 5) if dice < 0.65 else rng.randint(1, 24) if dice < 0.95 else rng.randint(25, 120)


def count(rng, n):
    """A number in braces, as digits or words."""
    if n >= 100 and chance(rng, 0.2):
        words = in_words(n)
        if n < 200 and chance(rng, 0.3):
            words = "a" + words[3:]
        return copied(words.replace(" and ", " ") if chance(rng, 0.4) else words)
    return copied(number(rng, n, 0 if n >= 100 else 0.42))


def unit(rng, n, names):
    name = one_of(rng, names)
    return name.removesuffix("s") if n == 1 else name


def measure(rng, n, names):
    """("{10} minutes", "{10}-minute")."""
    text = count(rng, n)
    singular = unit(rng, 1, names)
    return text + " " + unit(rng, n, names), text.replace("{a ", "{") + one_of(rng, ["-", " ", " "]) + singular


def halves(rng):
    """Half and quarter hours and minutes."""
    n = one_of(rng, [1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12])
    kind = int(rng.random() * 10)
    said = in_words(n) if chance(rng, 0.65) else str(n)
    if kind < 2:
        text = one_of(rng, ["{half} an hour", "{half} an hour", "{half} an hour", "a {half} hour", "{half} hour"])
        return text, one_of(rng, ["{half}-hour", "{half} hour"]), {"minutes": 30}
    if kind == 2:
        text = one_of(rng, ["a {quarter} of an hour", "{quarter} of an hour", "a {quarter} hour"])
        return text, one_of(rng, ["{quarter} hour", "{quarter}-hour"]), {"minutes": 15}
    if kind == 3:
        text = one_of(rng, ["{three quarters} of an hour", "{three-quarters} of an hour", "{3 quarters} of an hour", "{three quarters} of one hour"])
        return text, one_of(rng, ["{three-quarter} hour", "{three quarter} hour"]), {"minutes": 45}
    if kind == 4:
        text = one_of(rng, ["an {hour and a half}", "an {hour and a half}", "{one and a half} hours", "{1.5} hours", "{1 1/2} hours"])
        adjective = one_of(rng, ["{hour and a half}", "{one and a half} hour", "{1.5} hour", "{1.5}-hour"])
        return text, adjective, {"hours": 1, "minutes": 30}
    if kind == 5:
        n = max(n, 2)
        said = in_words(n) if chance(rng, 0.65) else str(n)
        text = one_of(rng, [f"{{{said} and a half}}", f"{{{said} and a half}}", f"{{{n}.5}}"])
        return text + " hours", text + " hour", {"hours": n, "minutes": 30}
    if kind == 6:
        if n == 1:
            text = one_of(rng, ["an {hour and a quarter}", "{one and a quarter} hours"])
            return text, text.removeprefix("an ").removesuffix("s"), {"hours": 1, "minutes": 15}
        return f"{{{said} and a quarter}} hours", f"{{{said} and a quarter}} hour", {"hours": n, "minutes": 15}
    if kind == 7:
        text = one_of(rng, ["{half} a minute", "{half} a minute", "a {half} minute"])
        return text, one_of(rng, ["{half}-minute", "{half} minute"]), {"seconds": 30}
    if n == 1:
        text = one_of(rng, ["a {minute and a half}", "a {minute and a half}", "{one and a half} minutes", "{1.5} minutes"])
        return text, one_of(rng, ["{minute and a half}", "{one and a half} minute", "{1.5} minute"]), {"minutes": 1, "seconds": 30}
    text = one_of(rng, [f"{{{said} and a half}}", f"{{{said} and a half}}", f"{{{n}.5}}"])
    return text + one_of(rng, [" minutes", " minutes", " mins"]), text + " minute", {"minutes": n, "seconds": 30}


def composed(rng):
    """Hours with minutes, minutes with seconds, or all the three."""
    glue = one_of(rng, [" and ", " and ", " ", ", "])
    minutes = one_of(rng, [5, 10, 15, 20, 20, 25, 30, 30, 40, 45, 50]) if chance(rng, 0.5) else rng.randint(1, 59)
    seconds = one_of(rng, [10, 15, 20, 30, 30, 40, 45, 50]) if chance(rng, 0.5) else rng.randint(1, 59)
    hours = rng.randint(1, 4) if chance(rng, 0.8) else rng.randint(1, 23)
    dice = rng.random()
    words = 0.45
    style = one_of(rng, [0, 0, 1])
    h = "an {hour}" if hours == 1 and chance(rng, 0.4) else copied(number(rng, hours, words)) + " " + unit(rng, hours, HOURS)
    if dice < 0.5:
        if chance(rng, 0.2) and minutes > 2:
            text = h + one_of(rng, [" ", " and "]) + copied(number(rng, minutes, words))
        else:
            text = h + glue + copied(number(rng, minutes, words)) + " " + unit(rng, minutes, MINUTES)
        result = {"hours": hours, "minutes": minutes}
    elif dice < 0.58:
        minutes, h = rng.randint(1, 59), one_of(rng, ["{%d}h {%d}m", "{%d}h{%d}", "{%d}h {%d}min", "{%d} h {%d} min"])
        text, result = h % (hours, minutes), {"hours": hours, "minutes": minutes}
    elif dice < 0.93:
        minutes = rng.randint(1, 12) if chance(rng, 0.8) else rng.randint(1, 59)
        m = copied(number(rng, minutes, words)) + " " + unit(rng, minutes, MINUTES)
        m = "a {minute}" if minutes == 1 and style else m
        if chance(rng, 0.15) and seconds > 4:
            text = m + one_of(rng, [" ", " and "]) + copied(number(rng, seconds, words))
        else:
            text = m + glue + copied(number(rng, seconds, words)) + " " + unit(rng, seconds, SECONDS)
        result = {"minutes": minutes, "seconds": seconds}
    else:
        m = copied(number(rng, minutes, words)) + " " + unit(rng, minutes, MINUTES)
        s = copied(number(rng, seconds, words)) + " " + unit(rng, seconds, SECONDS)
        text = h + one_of(rng, [", ", " "]) + m + one_of(rng, [" and ", ", and ", " "]) + s
        result = {"hours": hours, "minutes": minutes, "seconds": seconds}
    return text, None, result


def duration(rng):
    """(as a noun, as an adjective or None, arguments): ("{10} minutes", "{10}-minute", {"minutes": 10})."""
    dice = rng.random()
    if dice < 0.5:
        n = some_minutes(rng)
        if n == 1 and chance(rng, 0.5):
            return "a {minute}", "{one}-minute", {"minutes": 1}
        return *measure(rng, n, MINUTES), {"minutes": n}
    if dice < 0.62:
        n = some_seconds(rng)
        return *measure(rng, n, SECONDS), {"seconds": n}
    if dice < 0.72:
        n = some_hours(rng)
        if n == 1 and chance(rng, 0.6):
            return "an {hour}", one_of(rng, ["{one}-hour", "{hour}-long", "{one} hour", "{1} hour"]), {"hours": 1}
        return *measure(rng, n, HOURS), {"hours": n}
    return halves(rng) if dice < 0.86 else composed(rng)


def with_article(adjective):
    word = adjective[1:]
    an = word.startswith(("8", "11 ", "11}", "11-", "18 ", "18}", "18-", "eight", "eleven", "hour"))
    return ("an " if an else "a ") + adjective


def spoken(arguments):
    """The length of time for a reply: "1 hour and 30 minutes"."""
    parts = [f"{arguments[u]} {u if arguments[u] != 1 else u[:-1]}" for u in ("hours", "minutes", "seconds") if u in arguments]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def upper_first(text):
    return text[:1].upper() + text[1:]


# $d is a length of time, $adj the same as an adjective, $an with its article; $x what it is for, with its article, $l without; $need needs or need
PLAIN_ADJECTIVE = [
    "[set|start|create|make|begin|run|launch|open|add|put on|set up|give me|get me|fire up|kick off] $an timer",
    "[set|start|run|begin|do|give me] $an countdown[| timer]",
    "set [me|us] $an timer",
    "[set|start] [a new|another|a quick|a] $adj timer",
    "[get|have] $an timer [going|running|started]",
    "set [up|off] $an timer [now|right away|for me|for us]",
    "go ahead and set $an timer",
    "let $an timer run",
    "put $an timer on[| for me| for us]",
    "switch on $an timer",
    "count down $an stretch",
    "make me $an timer",
    "use $an timer",
    "start up $an timer",
]
PLAIN = [
    "[set|start|create|make|begin|run|launch|open|add|activate] [a|the|another|a new|one] timer [for|of|to|at|with] $d",
    "[set|start] [a|the] timer, $d",
    "[set|start] [a|the] timer [now |]for $d [starting now|from now|]",
    "set [me|us] a timer [for|of] $d",
    "set timer [for|to|] $d",
    "start timer [for|] $d",
    "set $d [on the timer|on the clock|on a timer|as a timer]",
    "put $d on the [timer|clock|kitchen timer]",
    "time $d[| for me| for us| from now| starting now]",
    "count [down|] $d[| for me| from now]",
    "count down [from|for] $d",
    "[start|do|run|set|begin] a countdown [of|for|from|over] $d",
    "[tell|alert|notify|warn|remind|ping|buzz|beep|nudge] me [in|after] $d",
    "let me know [in|after] $d",
    "give me $d[, then beep|, then ring| and then beep]",
    "let me know when $d [$are up|$have passed|$are over|$have gone by|$have elapsed]",
    "tell me [when|once|as soon as] $d [$are up|$have passed|$are over|$have gone by|$have elapsed]",
    "give me a [shout|buzz|heads-up|signal|beep|nudge|ping|sign] [in|after] $d",
    "give me $d [on the clock|on the timer]",
    "[beep|ring|buzz|ding|chime|go off|sound off] [in|after] $d",
    "[make a noise|make a sound|sound the bell|ring the bell|play a sound] [in|after] $d",
    "[get|have] a timer [going|running] for $d",
    "keep [time|track of time] for $d",
    "keep track of $d for me",
    "watch the clock for $d",
    "start the [clock|countdown] [for|at|with] $d",
    "start counting down $d",
    "start $d on the timer",
    "wind the timer [up |]to $d",
    "set the [clock|timer|kitchen timer|countdown] [to|for] $d",
    "make [the timer|a timer] go off in $d",
    "let [a|the] timer run for $d",
    "program a timer for $d",
    "turn on [a|the] timer for $d",
    "switch on [a|the] timer for $d",
    "measure $d[| for me]",
    "clock $d for me",
    "remind me when $d $are up",
    "fire up a timer for $d",
    "set one timer, $d, starting now",
    "have the timer [ring|beep|go off] in $d",
    "time me for $d",
    "time us, $d",
    "set a timer that goes off [in|after] $d",
    "set a timer to [ring|go off|beep] [in|after] $d",
    "[yell|shout|holler] when $d $are up",
    "put on a timer for $d",
    "put a timer on for $d",
    "add a timer: $d",
    "schedule a timer for $d",
]
PLAIN_CURT = [
    "timer[,|:|] $d",
    "timer for $d",
    "a timer for $d",
    "a timer, $d",
    "timer on, $d",
    "timer on for $d",
    "$d timer",
    "$d on the [clock|timer|kitchen timer]",
    "$d[, starting now|, go|, starting from now| from now]",
    "$d countdown",
    "countdown[,|:|] $d",
    "countdown [of|from|for] $d",
    "new timer[,|:| for] $d",
    "another timer[,|:| for] $d",
    "quick timer[,|:| for] $d",
    "next timer[:|,] $d",
    "timer [to|at] $d",
    "$d, timer",
    "$d on a timer",
    "ok timer, $d",
    "kitchen timer, $d",
    "one timer for $d",
]
PLAIN_CURT_ADJECTIVE = [
    "$adj timer",
    "$an timer",
    "$adj countdown",
    "$adj timer [now|starting now|on|for me]",
    "timer, $adj",
    "one $adj timer",
    "another $adj timer",
    "new $adj timer",
    "quick $adj timer",
]
PLAIN_STATEMENT = [
    "I [need|want] a timer [for|of] $d",
    "I['d| would] like a timer [for|of] $d",
    "I'd like [you to time|to time] $d",
    "I'd [like|love] to know when $d $are up",
    "I [need|want] to know when $d $have [passed|gone by]",
    "I want you to [time|count down] $d",
    "I want you to [beep|tell me|alert me|ring] in $d",
    "I need you to set a timer for $d",
    "I need you to let me know in $d",
    "I need [to be told|an alert|a reminder beep|a beep|a ping|a buzzer] in $d",
    "I need $d on the [clock|timer]",
    "I'd like $d on the [clock|timer]",
    "we [need|want] a timer for $d",
    "we'd like a timer for $d",
    "we need $d on the clock",
    "let's [set|start|do|have|run] a timer for $d",
    "let's put $d on the [clock|timer]",
    "let's [time|count down] $d",
    "let's have $d on the [clock|timer]",
    "let's say $d on the timer",
    "let's go with a timer of $d",
    "time for a timer, $d",
    "ok so I need a timer, [let's say|say|make it] $d",
    "it has to [sit|rest|simmer|cook|bake|stand|soak|boil|cool|chill|brew|steep|set] for $d, [so |]set a timer",
    "this [needs|takes|has to cook for|has to bake for|has to sit for|should rest for] $d, [can you time it|time it|set a timer|start the timer]",
    "the [recipe|box|packet|instructions|cookbook] [says|say] $d, [so |][set a timer|start a timer|time it for me|start the timer]",
    "I have to [wait|be ready in|check on it in] $d, set a timer",
    "I only have $d, [start the clock|start a timer|set a timer]",
    "I've got $d [left|], [start the clock|start a timer|set a timer|put a timer on]",
    "my hands are [full|wet|sticky|dirty], [set|start] a timer for $d",
    "I'm putting it in [now|the oven], [set a timer for|time] $d",
    "it's in the oven, [set a timer for|timer for|time] $d",
    "I [always forget|keep forgetting] the time, [so |]set a timer for $d",
    "I could use a timer for $d",
    "I'm going to need a timer for $d",
    "ok I'm starting now, [time $d|$d on the clock|set a timer for $d]",
    "right, timer for $d",
    "alright, $d on the clock",
    "so, a timer, $d",
    "don't let me go over $d, set a timer",
    "I'd be glad of a timer for $d",
    "I wish to have a timer for $d",
    "a timer would be [great|nice|good|helpful|handy], $d",
    "a timer for $d would be [great|nice|good|helpful|lovely]",
    "$d on the timer would be [great|nice|good]",
    "set the timer, it's $d",
    "the timer should [run|go] for $d",
    "the timer should [ring|go off|beep] in $d",
    "the timer needs to be $d",
    "I'm in a hurry, timer for $d",
    "I want a timer and it should run $d",
    "I want a timer running for $d",
    "I'm supposed to wait $d, let me know when [that's over|it's time|time's up]",
]
PLAIN_STATEMENT_ADJECTIVE = [
    "I [need|want] $an timer",
    "I['d| would] like $an timer",
    "we [need|want|could use] $an timer",
    "let's [set|start|do|have|run] $an timer",
    "$an timer would be [great|nice|good|lovely|helpful]",
    "I could use $an timer",
    "I'm going to need $an timer",
    "ok so I need $an timer now",
    "I'll take $an timer",
    "we'd like $an timer",
    "let's do $an countdown",
    "what I need is $an timer",
]
PLAIN_QUESTION = [
    "would you mind setting a timer [for|of] $d",
    "would you [set|start] a timer for $d",
    "do you mind [starting|setting] a timer for $d",
    "mind [timing $d for me|setting a timer for $d|counting down $d]",
    "can I [get|have] a timer for $d",
    "could I [get|have] a timer for $d",
    "may I have a timer for $d",
    "can we [get|have|do|start] a timer for $d",
    "could we [get|have|do|start] a timer for $d",
    "can you time $d[| for me]",
    "can you [tell me|let me know] when $d $are up",
    "could you [give me a shout|tell me|let me know|alert me|beep] in $d",
    "would you [tell me|let me know] when $d $have passed",
    "would you be so kind as to set a timer for $d",
    "how about a timer for $d",
    "what about starting a timer for $d",
    "is it possible to set a timer for $d",
    "might I have a timer for $d",
    "will you [time $d|set a timer for $d|count down $d] for me",
    "can you put $d on the [clock|timer]",
    "could you put $d on the [clock|timer]",
    "why don't you set a timer for $d",
    "are you able to set a timer for $d",
    "would it be possible to get a timer for $d",
    "can I get $d on the [clock|timer]",
    "can you keep [time|track of the time] for $d",
]
PLAIN_QUESTION_ADJECTIVE = [
    "would you mind setting $an timer",
    "can I [get|have] $an timer",
    "could I [get|have] $an timer",
    "could we [get|have|do] $an timer",
    "can we [get|have|do] $an timer",
    "may I have $an timer",
    "mind [setting|starting] $an timer",
    "do you mind starting $an timer",
    "would you [start|set] $an timer for me",
    "how about $an timer",
    "will you start $an timer",
    "would you be so kind as to set $an timer",
]
NAMED = [
    "[set|start|create|make|begin|run|launch|add] [a|the|another|a new] timer for $d for $x",
    "[set|start|create|make|begin|run] [a|the|another|a new] timer for $x[,| for| of|:] $d",
    "[set|start|create|make|begin|run|launch] [a|the|my|our] {$l} timer [for|of|to|at] $d",
    "[set|start] [a|the] {$l} timer, $d",
    "[set|start|create] a timer [called|named|labeled|labelled|titled] {$l} for $d",
    "[set|start|create|make] a timer for $d [called|named|labeled|labelled|titled] {$l}",
    "[set|start] a timer for $d [and call it|, call it|and name it|, name it|and label it|, label it] {$l}",
    "[set|start] a timer for $d with the [name|label|title] {$l}",
    "set a timer [with the name|with the label] {$l} [for|to] $d",
    "set $d for $x",
    "set timer [for|] $d for $x",
    "set timer {$l} [to|for] $d",
    "put $d on [the|] [clock|timer] for $x",
    "put $x on a timer for $d",
    "put $x on a $d timer",
    "time $d for $x",
    "time $x for $d",
    "time $x[:|,] $d",
    "count down $d for $x",
    "[start|do|run|begin|set] a countdown [of|for] $d for $x",
    "[start|do|run] a {$l} countdown [of|for|over] $d",
    "give $x $d[| on the timer| on the clock]",
    "give me $d for $x",
    "[get|have] a timer going for $x, $d",
    "[get|have] a {$l} timer going for $d",
    "start the [clock|countdown] for $x, $d",
    "start the {$l} timer [with|at] $d",
    "[tell|alert|notify|warn] me when $x [has|have] had $d",
    "keep time for $x, $d",
    "turn on a {$l} timer for $d",
    "[set|start] $d on the timer for $x",
    "add a {$l} timer[:|,| for| of] $d",
    "set up a {$l} timer for $d",
    "set up a timer for $x for $d",
    "fire up a {$l} timer for $d",
    "make a {$l} timer, $d",
    "set the timer for $x to $d",
    "set the {$l} timer to $d",
    "let a {$l} timer run for $d",
    "begin timing $x, $d",
    "start timing $x, $d",
]
NAMED_ADJECTIVE = [
    "[set|start|create|make|begin|run|launch|add|give me] $an timer for $x",
    "[set|start|create|make|begin|run|add|give me] $an {$l} timer",
    "[set|start|create] $an timer [called|named|labeled|labelled|titled] {$l}",
    "[set|start] $an timer [and call it|, call it|and name it|and label it] {$l}",
    "[start|do|run] $an countdown for $x",
    "[start|do|run] $an {$l} countdown",
    "get $an timer [going|running] for $x",
    "put $an timer on for $x",
    "set me $an timer for $x",
    "put $x on $an timer",
    "set up $an {$l} timer",
    "set another $adj timer for $x",
    "start a new $adj timer for $x",
]
NAMED_CURT = [
    "$d for $x",
    "$d {$l} timer",
    "{$l} timer[,|:| for|] $d",
    "{$l}[:|,] $d",
    "{$l} $d timer",
    "timer for $x[,|:|] $d",
    "timer[,|] $d[,|] for $x",
    "timer {$l} $d",
    "timer $d {$l}",
    "timer for $d for $x",
    "timer called {$l}, $d",
    "a {$l} timer, $d",
    "a {$l} timer for $d",
    "$d on the [clock|timer] for $x",
    "for $x, $d",
    "for $x, $d on the timer",
    "$d timer for $x",
    "$d, {$l}",
    "{$l}, $d on the timer",
    "$x, timer, $d",
    "new {$l} timer, $d",
    "another timer, for $x, $d",
    "countdown for $x[,|:] $d",
    "{$l} countdown, $d",
    "$d countdown for $x",
    "next is $x, $d",
]
NAMED_CURT_ADJECTIVE = [
    "$adj timer for $x",
    "$adj {$l} timer",
    "$an {$l} timer",
    "$an timer for $x",
    "$adj countdown for $x",
    "{$l}, $adj timer",
    "one $adj timer for $x",
    "another $adj timer for $x",
]
NAMED_STATEMENT = [
    "I [need|want] a timer for $x[,| for|:] $d",
    "I [need|want] a {$l} timer [for|of] $d",
    "I['d| would] like a {$l} timer [for|of] $d",
    "I['d| would] like a timer for $x[,| for] $d",
    "I'd like $d for $x",
    "I want $d for $x",
    "I need $d for $x",
    "I need you to time $x, $d",
    "I want you to time $x for $d",
    "I need a timer, $d, for $x",
    "we need a timer for $x, $d",
    "we need $d for $x",
    "we're doing $x, [so |]$d on the clock",
    "let's [set|start|do|have] a timer for $x, $d",
    "let's [set|start|do|have] a {$l} timer for $d",
    "let's give $x $d",
    "let's do $d for $x",
    "let's time $x, $d",
    "time for $x, [set a timer for|put a timer on for|start the clock,] $d",
    "I'm starting $x [now|], [time|count down] $d",
    "ok so I'm doing $x now, [set a timer for|timer for] $d",
    "right, $x, $d",
    "ok, $x now, $d on the timer",
    "a {$l} timer would be [great|nice|good|helpful], $d",
    "a timer for $x would be [great|nice|good], $d",
    "$d for $x would be [great|perfect|good]",
    "I could use a {$l} timer, [say |]$d",
    "I'm going to need a timer for $x, $d",
    "there should be a {$l} timer for $d",
    "the {$l} timer should run for $d",
    "for $x I need a timer of $d",
    "for $x I need $d",
    "for $x I'd like $d on the clock",
    "$x, that's $d[|, start the timer]",
    "I'd love a timer for $x, $d",
    "for $x, [set|start] a timer for $d",
    "for $x, put $d on the [clock|timer]",
]
NAMED_STATEMENT_ADJECTIVE = [
    "I [need|want] $an timer for $x",
    "I['d| would] like $an timer for $x",
    "I['d| would] like $an {$l} timer",
    "I [need|want] $an {$l} timer",
    "let's [set|start|do|have] $an timer for $x",
    "let's [set|do] $an {$l} timer",
    "we [need|want] $an timer for $x",
    "$an timer for $x would be [great|nice|lovely]",
    "I could use $an timer for $x",
    "for $x I need $an timer",
    "for $x, [set|start] $an timer",
]
NAMED_QUESTION = [
    "would you mind setting a timer for $x, $d",
    "would you mind setting a {$l} timer for $d",
    "can I [get|have] a {$l} timer for $d",
    "could I [get|have] a {$l} timer for $d",
    "could I [get|have] $d for $x",
    "can I [get|have] $d for $x",
    "can we do $d for $x",
    "may I have a timer for $x, $d",
    "can you time $x for $d",
    "could you time $x, $d",
    "mind timing $x for $d",
    "do you mind setting a timer for $x, $d",
    "could we have a timer for $x, $d",
    "would you put $d on the [clock|timer] for $x",
    "would you time $d for $x",
    "how about a {$l} timer for $d",
    "is it possible to have a {$l} timer of $d",
    "will you give $x $d",
    "would you be so kind as to time $x for $d",
]
NAMED_QUESTION_ADJECTIVE = [
    "would you mind setting $an timer for $x",
    "can I [get|have] $an timer for $x",
    "could I [get|have] $an {$l} timer",
    "may I have $an {$l} timer",
    "can we [get|do] $an timer for $x",
    "mind starting $an timer for $x",
    "how about $an timer for $x",
    "will you start $an timer for $x",
    "would you do $an {$l} timer",
]
FOOD_STATEMENT = [
    "$x [$need|$take] $d",
    "$x [$need|$take] [another|] $d",
    "$x $need $d [in the oven|on the stove|in the pan|in the pot|of rest|to rest|to cool|to cook|until done]",
    "$x $have to [cook|boil|bake|simmer|rest|sit|stand|cool|steam|fry|roast|brew|steep|chill] [for|] $d",
    "$x should [cook|boil|bake|simmer|rest|sit|stand|cool|steam|fry|roast|brew|steep|chill] for $d",
    "$x must [cook|boil|bake|simmer|rest|sit|stand|cool|steam|fry|roast|brew|steep|chill] for $d",
    "$x will be [done|ready] in $d",
    "$x will [need|take] $d",
    "$x $need $d, [set a timer|start a timer|start the timer|time it|let me know|tell me when]",
    "$x $take $d, [set a timer|start a timer|start the timer|time it|let me know|tell me when]",
    "$x $are in the [oven|pot|pan|water|fridge], [$d|time $d|set a timer for $d|timer for $d]",
    "I just put $x [in the oven|on|in|on the stove], [set a timer for $d|timer for $d|$d on the clock]",
    "I've put $x [in the oven|on|in|on the stove], [set a timer for $d|timer for $d|$d on the clock]",
    "I'm [making|cooking|preparing|doing] $x, [set a timer for|timer for|time] $d",
    "let me know when $x $are done, [it takes|that's] $d",
    "I want $x [to cook|to rest|to sit] for $d",
    "$x, $d in the oven",
    "$x [$go|$are going] in the oven for $d, set a timer",
    "$x $are cooking, $d to go",
    "just dropped $x in, $d on the timer",
    "don't let $x burn, [set a timer for $d|$d on the timer]",
]
FOOD_COMMAND = [
    "[tell me|let me know|remind me|alert me] when $x $are [done|ready], in $d",
    "let me know in $d when $x $are [done|ready]",
    "tell me in $d that $x $are [done|ready]",
    "let $x [cook|boil|simmer|rest|cool|steep|brew|bake] for $d and [tell me|let me know|beep]",
    "watch $x for $d",
    "check $x in $d with a timer",
]
TASK_STATEMENT = [
    "$d of {$l}",
    "$d of {$l}, [starting now|go|timer on|start the clock|set a timer]",
    "let's do $d of {$l}",
    "time for $d of {$l}[|, set a timer|, start the clock]",
    "I'm doing $d of {$l}[|, set a timer|, start the clock|, start a timer]",
    "I [want|need|have] to do $d of {$l}, [set a timer|start a timer|start the clock|time me|time it]",
    "the kids [get|have|are allowed] $d of {$l}, [set a timer|start the timer|time it]",
    "[Leo|Mia|Ben|she|he|my son|my daughter] gets $d of {$l}, [set a timer|start the timer|time it]",
    "we said $d of {$l}, [set a timer|start the timer|time it]",
    "I'd like to do $d of {$l}, [set a timer|start a timer|time me]",
    "I need a timer for $d of {$l}",
    "only $d of {$l}, set a timer",
]
TASK_COMMAND = [
    "[set|start] a timer for $d of {$l}",
    "[time|count down] $d of {$l}",
    "put $d of {$l} on the [clock|timer]",
    "give [me|us|the kids|the boys|the girls] $d of {$l}",
    "start $d of {$l}",
    "start the clock for $d of {$l}",
]
PAIRS = [
    ("command", "[set|start] [two timers|timers], $da for $xa and $db for $xb", True),
    ("command", "[set|start] a timer for $da for $xa and [another|one] for $db for $xb", True),
    ("command", "[set|start] a {$la} timer for $da and a {$lb} timer for $db", True),
    ("command", "[set|start|make] two timers, {$la} $da and {$lb} $db", True),
    ("command", "time $xa for $da and $xb for $db", True),
    ("statement", "$da for $xa and $db for $xb", True),
    ("statement", "two timers[:|,] $da for $xa, $db for $xb", True),
    ("statement", "{$la} $da, {$lb} $db", True),
    ("statement", "I need $da for $xa and $db for $xb", True),
    ("statement", "I need two timers, {$la} for $da and {$lb} for $db", True),
    ("question", "would you mind timing $da for $xa and $db for $xb", True),
    ("command", "[set|start] [two timers|timers], [one for|] $da and [one for|] $db", False),
    ("command", "[set|start] a timer for $da and [another|one|another one] for $db", False),
    ("command", "[set|start|run] timers for $da and $db", False),
    ("statement", "two timers, $da and $db", False),
    ("statement", "timers for $da and $db", False),
    ("statement", "I need two timers, $da and $db", False),
    ("question", "can I have two timers, one for $da and one for $db", False),
]
GROUPED = {
    (False, False): [("command", PLAIN, 11), ("statement", PLAIN_CURT, 4), ("statement", PLAIN_STATEMENT, 6), ("question", PLAIN_QUESTION, 3)],
    (False, True): [
        ("command", PLAIN_ADJECTIVE, 8),
        ("statement", PLAIN_CURT_ADJECTIVE, 3),
        ("statement", PLAIN_STATEMENT_ADJECTIVE, 3),
        ("question", PLAIN_QUESTION_ADJECTIVE, 2),
    ],
    (True, False): [("command", NAMED, 10), ("statement", NAMED_CURT, 5), ("statement", NAMED_STATEMENT, 5), ("question", NAMED_QUESTION, 2)],
    (True, True): [
        ("command", NAMED_ADJECTIVE, 8),
        ("statement", NAMED_CURT_ADJECTIVE, 4),
        ("statement", NAMED_STATEMENT_ADJECTIVE, 3),
        ("question", NAMED_QUESTION_ADJECTIVE, 2),
    ],
}
SPREAD = {key: [(form, patterns) for form, patterns, weight in groups for _ in range(weight)] for key, groups in GROUPED.items()}

SET_REPLIES = [
    "Timer set for $d.",
    "$D, starting now.",
    "OK, $d.",
    "The timer is running: $d.",
    "I'll let you know in $d.",
    "Done, $d on the clock.",
    "Your timer is set for $d.",
    "Counting down $d.",
    "All right, $d from now.",
    "Sure, $d.",
    "I've set a timer for $d.",
    "$D on the timer.",
    "Got it, I'll ring in $d.",
]
SET_NAMED_REPLIES = [
    "$L timer set for $d.",
    "OK, $d for $l.",
    "Done, $d for $l.",
    "The $l timer is running: $d.",
    "$D for $l, starting now.",
    "I've set a $l timer for $d.",
    "Sure, $l: $d.",
    "The $l timer is set for $d.",
    "Your $l timer will ring in $d.",
    "All right, the $l timer rings in $d.",
]
SET_ERRORS = ["too many timers", "timer not available", "no free timer", "timer service is down", "speaker offline", "timer failed"]


def failed(rng, errors):
    """A result that is an error, and the reply to it."""
    error = one_of(rng, errors)
    openings = ["Sorry, that didn't work: $e.", "That failed: $e.", "I couldn't do that: $e.", "Sorry: $e.", "It didn't work, $e.", "No luck: $e."]
    return {"error": error}, one_of(rng, openings).replace("$e", error)


def said(rng, replies, arguments):
    d = spoken(arguments) if len(arguments) > ("label" in arguments) else ""
    name = arguments.get("label", "")
    return expand(rng, one_of(rng, replies).replace("$D", upper_first(d)).replace("$L", upper_first(name)), d=d, l=name)


def answered(rng, text, form, tool, arguments, replies, errors):
    """The request with one call, its result and its reply."""
    if chance(rng, 0.025):
        result, reply = failed(rng, errors)
    else:
        result, reply = {"ok": True}, said(rng, replies, arguments)
    return Request(text, form, [(tool, arguments)], [result], reply)


def set_answered(rng, text, form, arguments):
    return answered(rng, text, form, "set_timer", arguments, SET_NAMED_REPLIES if "label" in arguments else SET_REPLIES, SET_ERRORS)


def one_thing(arguments):
    """Whether the length of time is singular."""
    times = {key: n for key, n in arguments.items() if key != "label"}
    return len(times) == 1 and (list(times.values())[0] == 1 or times in ({"minutes": 30}, {"minutes": 15}, {"seconds": 30}))


def pair_of_timers(rng):
    form, pattern, named = one_of(rng, PAIRS)
    (d1, _, first), (d2, _, second) = duration(rng), duration(rng)
    (_, x1, l1), (_, x2, l2) = label(rng), label(rng)
    text = expand(rng, pattern, da=d1, db=d2, xa=x1, xb=x2, la=l1, lb=l2)
    s1, s2 = spoken(first), spoken(second)
    if named:
        first, second = {**first, "label": l1}, {**second, "label": l2}
        s1, s2 = f"{s1} for {l1}", f"{s2} for {l2}"
    reply = one_of(rng, ["Two timers: ", "OK, ", "Both are running: ", "Done, ", "Sure, "]) + f"{s1} and {s2}."
    return Request(text, form, [("set_timer", first), ("set_timer", second)], [{"ok": True}, {"ok": True}], reply)


def set_timer(rng):
    if chance(rng, 0.035):
        return pair_of_timers(rng)
    noun, adjective, arguments = duration(rng)
    named = chance(rng, 0.45)
    kind, x, name = label(rng)
    if named and kind == "food" and chance(rng, 0.2):
        form, patterns = one_of(rng, [("statement", FOOD_STATEMENT)] * 4 + [("command", FOOD_COMMAND)])
    elif named and kind == "task" and chance(rng, 0.5):
        form, patterns = one_of(rng, [("statement", TASK_STATEMENT)] * 2 + [("command", TASK_COMMAND)])
    else:
        form, patterns = one_of(rng, SPREAD[named, bool(adjective) and chance(rng, 0.33)])
    many = plural(name) if patterns in (FOOD_STATEMENT, FOOD_COMMAND) else not one_thing(arguments)
    verbs = ("need", "take", "have", "are", "go") if many else ("needs", "takes", "has", "is", "goes")
    adjective = adjective or "{five}-minute"
    text = expand(rng, one_of(rng, patterns), d=noun, adj=adjective, an=with_article(adjective), x=x, l=name,
                  need=verbs[0], take=verbs[1], have=verbs[2], are=verbs[3], go=verbs[4])  # fmt: skip
    return set_answered(rng, text, form, {**arguments, "label": name} if named else arguments)


CANCEL = [
    "[cancel|stop|end|kill|delete|remove|clear|abort|dismiss|drop|scrap|scratch] [the|my|that|this|our] timer",
    "[quit|turn off|switch off|shut off|get rid of|call off|discard] [the|my|that|this|our] timer",
    "[cancel|stop|end|kill|delete|remove|clear|abort] timer",
    "[forget|ditch|nix|axe|erase|undo] [the|my|that] timer",
    "[cancel|stop|clear|delete|end|kill|remove] [all|all the|all my|all of the|every single one of my] timers",
    "stop the [countdown|clock|kitchen timer]",
    "cancel the [countdown|running timer|current timer|timer that's running|timer you just set|timer I set]",
    "turn the timer off",
    "switch the timer off",
    "shut the timer [off|down|up]",
    "take the timer off",
    "make the timer stop",
    "call the timer off",
    "stop counting down",
    "stop timing",
    "stop the timer [now|right now|for me|already|early]",
    "silence the timer",
    "put an end to the timer",
    "shut up the timer",
    "wipe the timer",
    "break off the timer",
]
CANCEL_STATEMENT = [
    "timer off",
    "[no|stop,] timer off",
    "no more timer",
    "timer [stop|cancel|end|off now]",
    "I don't need the timer [any more|anymore|now|after all|any longer]",
    "I no longer need [the|a|that] timer",
    "we don't need the timer [any more|anymore|now|after all]",
    "no need for the timer [any more|anymore|now|]",
    "there's no need for [the|a] timer [any more|anymore|]",
    "I [want|need] the timer [off|gone|stopped|cancelled|canceled]",
    "I'd like the timer [off|gone|stopped|cancelled|canceled]",
    "I'd like to [cancel|stop|end|delete] the timer",
    "I want to [cancel|stop|end|delete] [the|my] timer",
    "the timer can [stop|go|be stopped|be cancelled|be deleted] [now|]",
    "the timer isn't needed [any more|anymore|now|]",
    "the timer is no longer needed",
    "that timer was a mistake, [cancel it|delete it|get rid of it]",
    "enough with the timer",
    "I've changed my mind about the timer, cancel it",
    "I'm done, [stop|cancel|end] the timer",
    "we're done, [stop|cancel|end] the timer",
    "it's done already, [stop|cancel|kill] the timer",
    "let's [stop|cancel|end|drop|lose] the timer",
    "ok ok, timer off",
    "countdown off",
    "never mind [|about ]the timer",
    "nevermind the timer",
    "finished early, [stop|cancel] the timer",
    "I set the wrong timer, [cancel|delete] it",
    "the timer should stop",
    "I made a mistake, cancel the timer",
]
CANCEL_QUESTION = [
    "would you mind [cancelling|canceling|stopping|ending|turning off|killing] the timer",
    "do you mind [stopping|turning off|cancelling] the timer",
    "mind [stopping|turning off|cancelling|canceling|killing] [the|my|that] timer",
    "can we [stop|cancel|lose|drop] the timer",
    "can I [stop|cancel] the timer",
    "could we [stop|cancel|lose|drop] the timer",
    "would you [stop|cancel|kill|end] the timer",
    "will you stop the timer",
    "can you get rid of [the|that|my] timer",
    "can you make the timer stop",
    "would you be so kind as to cancel the timer",
    "is it possible to cancel the timer",
    "how about stopping the timer",
    "can the timer be [stopped|cancelled]",
]
CANCEL_NAMED = [
    "[cancel|stop|end|kill|delete|remove|clear|abort|dismiss|drop|scrap|scratch] [the|my|that|our] {$l} timer",
    "[turn off|switch off|shut off|get rid of|call off] [the|my|that|our] {$l} timer",
    "[cancel|stop|end|kill|delete|remove|clear|abort|drop|scrap|turn off|switch off] [the|my|that] timer for $x",
    "[cancel|stop|end|kill|delete|remove|turn off] [the|] timer [called|named|labeled|labelled] {$l}",
    "[cancel|stop|kill|delete|end|clear] {$l} timer",
    "[forget|ditch|nix|erase] [the|my|that] {$l} timer",
    "[forget|ditch] the timer for $x",
    "turn the {$l} timer off",
    "switch the {$l} timer off",
    "shut the {$l} timer off",
    "call the {$l} timer off",
    "make the {$l} timer stop",
    "stop the [countdown|clock] for $x",
    "stop the {$l} countdown",
    "stop timing $x",
    "take the {$l} timer off",
    "cancel the running {$l} timer",
    "cancel the timer that's running for $x",
    "cancel the timer I set for $x",
    "silence the {$l} timer",
    "put an end to the {$l} timer",
    "stop counting down for $x",
]
CANCEL_NAMED_STATEMENT = [
    "{$l} timer off",
    "{$l} timer [stop|cancel|end]",
    "no more {$l} timer",
    "timer for $x off",
    "timer {$l} off",
    "I don't need the {$l} timer [any more|anymore|now|after all|any longer]",
    "I don't need the timer for $x [any more|anymore|now|after all]",
    "I no longer need [the|that] {$l} timer",
    "we don't need the {$l} timer [any more|anymore|now|after all]",
    "no need for the {$l} timer [any more|anymore|now|]",
    "there's no need for the {$l} timer [any more|anymore|]",
    "I [want|need] the {$l} timer [off|gone|stopped|cancelled|canceled]",
    "I'd like the {$l} timer [off|gone|stopped|cancelled|canceled]",
    "I'd like to [cancel|stop|end|delete] the {$l} timer",
    "I want to [cancel|stop|end|delete] the timer for $x",
    "the {$l} timer can [stop|go|be stopped|be cancelled] [now|]",
    "the {$l} timer isn't needed [any more|anymore|now|]",
    "the {$l} timer is no longer needed",
    "the timer for $x is no longer needed",
    "that {$l} timer was a mistake, [cancel it|delete it|get rid of it]",
    "enough with the {$l} timer",
    "I've changed my mind about the {$l} timer, cancel it",
    "I'm finished with $x, cancel the {$l} timer",
    "I'm done with $x, stop the {$l} timer",
    "let's [stop|cancel|drop|lose] the {$l} timer",
    "never mind [|about ]the {$l} timer",
    "you can [stop|cancel|end] the {$l} timer [now|]",
    "you can stop the timer for $x [now|]",
    "the {$l} timer should stop",
]
CANCEL_NAMED_QUESTION = [
    "would you mind [cancelling|canceling|stopping|ending|turning off|killing] the {$l} timer",
    "would you mind [cancelling|stopping] the timer for $x",
    "do you mind [stopping|turning off|cancelling] the {$l} timer",
    "mind [stopping|turning off|cancelling|canceling|killing] [the|my|that] {$l} timer",
    "can we [stop|cancel|lose|drop] the {$l} timer",
    "can I [stop|cancel] the {$l} timer",
    "could we [stop|cancel|drop] the timer for $x",
    "would you [stop|cancel|kill|end] the {$l} timer",
    "will you stop the {$l} timer",
    "can you get rid of [the|that|my] {$l} timer",
    "how about stopping the {$l} timer",
    "is it possible to cancel the timer for $x",
]
CANCEL_REPLIES = [
    "The timer is off.", "Timer cancelled.", "Timer canceled.", "Done, the timer is gone.", "OK, I stopped the timer.", "No more timer.", "Stopped.",
    "I've cancelled the timer.", "The timer has been stopped.", "All right, timer off.", "Sure, the timer is stopped.",
]  # fmt: skip
CANCEL_NAMED_REPLIES = [
    "The $l timer is off.", "$L timer cancelled.", "$L timer canceled.", "Done, the $l timer is gone.", "OK, I stopped the $l timer.",
    "I've cancelled the $l timer.", "The $l timer has been stopped.", "All right, $l timer off.", "No more $l timer.",
]  # fmt: skip
CANCEL_ERRORS = ["no timer is running", "no such timer", "timer not found", "the timer has already ended", "speaker offline", "no timers set"]


def cancel_answered(rng, text, form, arguments):
    return answered(rng, text, form, "cancel_timer", arguments, CANCEL_NAMED_REPLIES if arguments else CANCEL_REPLIES, CANCEL_ERRORS)


def cancel_timer(rng):
    if chance(rng, 0.45):
        form, patterns = one_of(rng, [("command", CANCEL)] * 5 + [("statement", CANCEL_STATEMENT)] * 4 + [("question", CANCEL_QUESTION)] * 2)
        return cancel_answered(rng, expand(rng, one_of(rng, patterns)), form, {})
    _, x, name = label(rng)
    groups = [("command", CANCEL_NAMED)] * 5 + [("statement", CANCEL_NAMED_STATEMENT)] * 4 + [("question", CANCEL_NAMED_QUESTION)] * 2
    form, patterns = one_of(rng, groups)
    return cancel_answered(rng, expand(rng, one_of(rng, patterns), x=x, l=name), form, {"label": name})


CHANGES = [
    ("command", "make [it|that] $d [instead|]"),
    ("command", "[change|set] [it|that] to $d [instead|]"),
    ("command", "make it $d, not $o"),
    ("command", "switch it to $d"),
    ("command", "change the timer to $d"),
    ("statement", "[no, |]actually[,|] $d"),
    ("statement", "no, $d"),
    ("statement", "no, make it $d"),
    ("statement", "no wait, $d"),
    ("statement", "wait, make that $d"),
    ("statement", "sorry, $d"),
    ("statement", "sorry, I meant $d"),
    ("statement", "I meant $d"),
    ("statement", "I mean $d"),
    ("statement", "oh, it should be $d"),
    ("statement", "it should be $d"),
    ("statement", "$d instead"),
    ("statement", "rather $d"),
    ("statement", "better $d"),
    ("statement", "better make it $d"),
    ("statement", "let's make it $d"),
    ("statement", "let's say $d instead"),
    ("statement", "not $o, $d"),
    ("statement", "I said $d"),
    ("statement", "hmm, $d would be better"),
    ("statement", "on second thought, $d"),
    ("statement", "oops, I meant $d, not $o"),
    ("statement", "I'd rather have $d"),
    ("question", "can you make that $d"),
    ("question", "could you change it to $d"),
    ("question", "could we make it $d instead"),
    ("question", "can it be $d instead"),
    ("question", "how about $d instead"),
]
BARE_CHANGES = [
    ("command", "make [it|that] $n [instead|]"),
    ("statement", "actually[,|] $n"),
    ("statement", "no, make it $n"),
    ("statement", "no, $n"),
    ("statement", "not {$old}, $n"),
    ("statement", "sorry, $n"),
    ("statement", "I meant $n"),
    ("command", "change it to $n"),
    ("statement", "$n instead"),
    ("statement", "let's say $n instead"),
]
SAME = [
    ("statement", "and the same for $x"),
    ("statement", "the same for $x [too|as well|]"),
    ("statement", "same [again |]for $x"),
    ("command", "do the same for $x"),
    ("command", "set the same for $x"),
    ("command", "set the same one for $x"),
    ("command", "add one of the same length for $x"),
    ("statement", "and one for $x too, just as long"),
    ("statement", "I need the same for $x"),
    ("question", "can you do the same for $x"),
    ("question", "could I have the same for $x"),
]
ANOTHER = [
    ("statement", "and $d for $x"),
    ("statement", "and one for $x, $d"),
    ("statement", "and for $x, $d"),
    ("statement", "and $x[,|:] $d"),
    ("statement", "another one for $x, $d"),
    ("statement", "another for $x, $d"),
    ("command", "[set|start|add] another [one|] for $x, $d"),
    ("command", "[set|start] one for $x too, $d"),
    ("command", "also set $d for $x"),
    ("command", "also start one for $x, $d"),
    ("statement", "also $d for $x"),
    ("statement", "then $x, $d"),
    ("statement", "plus $d for $x"),
    ("statement", "and a {$l} timer too, $d"),
    ("statement", "I also need $d for $x"),
    ("statement", "and I need one for $x, $d"),
    ("question", "can I also have one for $x, $d"),
    ("question", "could you also do $d for $x"),
]
ANOTHER_PLAIN = [
    ("statement", "and another one for $d"),
    ("statement", "another one for $d"),
    ("statement", "and one for $d"),
    ("command", "[set|start|add] another one for $d"),
    ("command", "add one for $d too"),
    ("statement", "and $d as well"),
    ("statement", "and one more for $d"),
    ("statement", "plus one for $d"),
    ("question", "can you start another one for $d"),
    ("question", "can I have one for $d too"),
]
UNDO = [
    ("command", "[cancel|stop|delete|drop|scrap|kill] [it|that|it again|that one|that again]"),
    ("statement", "[no|actually], [cancel|stop|forget|scratch] [it|that]"),
    ("statement", "never mind, [cancel|stop|delete] [it|that]"),
    ("statement", "and off again"),
    ("statement", "changed my mind, [cancel|stop|delete] it"),
    ("statement", "on second thought, cancel it"),
    ("command", "turn it off [again|]"),
    ("statement", "I don't need it [any more|anymore|after all]"),
    ("statement", "wait, cancel that"),
    ("statement", "oh, I don't need it, stop it"),
    ("question", "can you stop it [again|]"),
    ("question", "could you cancel that [again|]"),
]


def after_set(rng, arguments):
    old = {key: n for key, n in arguments.items() if key != "label"}
    name = {"label": arguments["label"]} if "label" in arguments else {}
    dice = rng.random()
    noun, _, new = duration(rng)
    if dice < 0.4:
        if new == old:
            return None
        if dice < 0.1 and list(old) == ["minutes"]:
            n = some_minutes(rng)
            if n == old["minutes"] or n == 1:
                return None
            form, pattern = one_of(rng, BARE_CHANGES)
            text = expand(rng, pattern, n=copied(number(rng, n, 0.4)), old=str(old["minutes"]))
            return set_answered(rng, text, form, {"minutes": n, **name})
        form, pattern = one_of(rng, CHANGES)
        return set_answered(rng, expand(rng, pattern, d=noun, o=copied(spoken(old))), form, {**new, **name})
    _, x, other = label(rng)
    if dice < 0.55:
        form, pattern = one_of(rng, SAME)
        return set_answered(rng, expand(rng, pattern, x=x), form, {**old, "label": other})
    if dice < 0.75:
        form, pattern = one_of(rng, ANOTHER)
        return set_answered(rng, expand(rng, pattern, d=noun, x=x, l=other), form, {**new, "label": other})
    if dice < 0.85:
        form, pattern = one_of(rng, ANOTHER_PLAIN)
        return None if name else set_answered(rng, expand(rng, pattern, d=noun), form, new)
    form, pattern = one_of(rng, UNDO)
    return cancel_answered(rng, expand(rng, pattern), form, name)


ALSO_CANCEL = [
    ("statement", "and [the|my] {$l} timer [too|as well|]"),
    ("statement", "and the {$l} one [too|as well|]"),
    ("statement", "and the one for $x [too|as well|]"),
    ("statement", "the {$l} one [too|as well|also]"),
    ("statement", "the one for $x too"),
    ("statement", "also the {$l} one"),
    ("statement", "also the one for $x"),
    ("command", "[stop|cancel|delete] the {$l} one [too|as well]"),
    ("command", "[stop|cancel|delete] the one for $x [too|as well]"),
    ("command", "do the same with the {$l} timer"),
    ("command", "do the same with the one for $x"),
    ("statement", "same for the {$l} timer"),
    ("statement", "same with the {$l} one"),
    ("statement", "I don't need the {$l} one either"),
    ("statement", "I don't need the one for $x either"),
    ("statement", "the {$l} timer can go too"),
    ("statement", "and {$l}"),
    ("statement", "and {$l} too"),
    ("question", "can you stop the {$l} one too"),
    ("question", "and the {$l} timer"),
    ("question", "and the one for $x"),
]
RESTART = [
    ("command", "set a new one [for|of] $d"),
    ("command", "[start|set] another one [for|of] $d"),
    ("command", "start a new one, $d"),
    ("statement", "and a new one for $d"),
    ("command", "start it again with $d"),
    ("command", "set it again for $d"),
    ("statement", "now a new one, $d"),
    ("statement", "I need a new one for $d"),
    ("question", "can I have a new one for $d"),
    ("statement", "new one, $d"),
]


def after_cancel(rng, arguments):
    if arguments:
        _, x, name = label(rng)
        if name == arguments["label"]:
            return None
        form, pattern = one_of(rng, ALSO_CANCEL)
        return cancel_answered(rng, expand(rng, pattern, x=x, l=name), form, {"label": name})
    noun, _, new = duration(rng)
    form, pattern = one_of(rng, RESTART)
    return set_answered(rng, expand(rng, pattern, d=noun), form, new)


REQUESTS = {"set_timer": (1.0, set_timer), "cancel_timer": (0.45, cancel_timer)}
FOLLOWS = {"set_timer": after_set, "cancel_timer": after_cancel}
