"""Requests for the tool `get_weather`: rain, umbrellas, coats, frost, wind, barbecues, for every place and day."""

import re

from grammar import Request, chance, copied, expand, one_of
from places import mentioned


def framed(**patterns):
    """[(form, pattern)] of the patterns of each form."""
    return [(form, pattern) for form in patterns for pattern in patterns[form]]


# What the tool answers: (words, whether they are an adjective, kind, lowest and highest temperature)
SKIES = [
    ("sunny", True, "dry", 4, 36), ("clear", True, "dry", -12, 30), ("mostly sunny", True, "dry", 2, 32), ("partly cloudy", True, "dry", -4, 28),
    ("cloudy", True, "dry", -6, 24), ("overcast", True, "dry", -6, 22), ("mostly cloudy", True, "dry", -5, 25), ("dry", True, "dry", -5, 30),
    ("foggy", True, "dry", -4, 14), ("misty", True, "dry", -2, 15), ("hazy", True, "dry", 8, 38), ("windy", True, "dry", -4, 22),
    ("bright", True, "dry", 0, 26), ("hot and sunny", True, "dry", 27, 41), ("cold and clear", True, "dry", -18, 3), ("stormy", True, "rain", 3, 26),
    ("rainy", True, "rain", 3, 21), ("grey", True, "dry", -3, 17), ("sunny and windy", True, "dry", 3, 26), ("fair", True, "dry", 6, 26),
    ("light rain", False, "rain", 3, 22), ("rain", False, "rain", 3, 21), ("heavy rain", False, "rain", 4, 23), ("showers", False, "rain", 4, 21),
    ("drizzle", False, "rain", 3, 17), ("thunderstorms", False, "rain", 14, 31), ("scattered showers", False, "rain", 5, 20),
    ("snow", False, "snow", -12, 1), ("light snow", False, "snow", -10, 2), ("heavy snow", False, "snow", -14, 0), ("sleet", False, "snow", -1, 3),
    ("fog", False, "dry", -3, 12), ("freezing rain", False, "rain", -4, 1), ("hail", False, "rain", 2, 15), ("strong wind", False, "dry", -2, 20),
    ("clear sky", False, "dry", -12, 29), ("some clouds", False, "dry", 0, 25), ("sunny spells", False, "dry", 4, 26), ("mist", False, "dry", 0, 13),
    ("frost", False, "dry", -12, 0), ("rain showers", False, "rain", 4, 19), ("thunder and rain", False, "rain", 12, 28),
    ("snow showers", False, "snow", -8, 2),
]  # fmt: skip
ERRORS = [
    "no connection", "weather service not available", "timeout", "place not found", "no forecast", "no data", "service down", "network error",
    "unknown place", "offline",
]  # fmt: skip
SORRY = [
    "Sorry, I couldn't get the weather: $e.", "I have no weather for you: $e.", "That didn't work: $e.", "I can't tell: $e.", "Sorry, $e.",
    "I couldn't look that up: $e.", "No weather report just now: $e.", "I couldn't find out: $e.",
]  # fmt: skip

WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# $w is a weekday
WHEN = {
    "today": ["today", "today", "today", "today", "tonight", "tonight", "this afternoon", "this morning", "this evening", "later today",
              "today at noon", "later tonight", "this afternoon at four", "for the rest of today", "all day today", "during the day today"],
    "tomorrow": ["tomorrow", "tomorrow", "tomorrow", "tomorrow", "tomorrow", "tomorrow morning", "tomorrow afternoon", "tomorrow evening",
                 "tomorrow night", "tomorrow at noon", "early tomorrow", "tomorrow around lunchtime", "all day tomorrow"],
    "weekend": ["this weekend", "this weekend", "at the weekend", "on the weekend", "over the weekend", "this coming weekend", "during the weekend"],
    "weekday": ["on $w", "on $w", "on $w", "on $w", "on $w", "this $w", "next $w", "on $w morning", "on $w afternoon", "on $w evening",
                "on $w night", "this coming $w", "come $w", "$w"],
}  # fmt: skip
NOUN = {  # the day in front of a noun: "tomorrow's weather"
    "today": ["today's", "today's", "tonight's", "this afternoon's", "this evening's"],
    "tomorrow": ["tomorrow's", "tomorrow's", "tomorrow morning's"],
    "weekend": ["the weekend's", "the weekend", "this weekend's"], "weekday": ["$w's", "$w's", "the $w", "next $w's"],
}  # fmt: skip
BARE = {  # the day alone: "the forecast for tomorrow"
    "today": ["today", "today", "tonight", "this afternoon", "this evening", "later today"],
    "tomorrow": ["tomorrow", "tomorrow", "tomorrow morning", "tomorrow night"],
    "weekend": ["the weekend", "this weekend", "the coming weekend"],
    "weekday": ["$w", "$w", "$w", "next $w", "$w morning", "$w afternoon", "this $w"],
}  # fmt: skip


def some_day(rng):
    r = rng.random()
    if r < 0.22:
        return "today"
    if r < 0.47:
        return "tomorrow"
    return "weekend" if r < 0.6 else one_of(rng, WEEKDAYS)


def day_text(rng, day, table):
    """The day as that table writes it; weekdays are copied and now and then have their capital letter."""
    if day not in WEEKDAYS:
        return one_of(rng, table[day])
    return one_of(rng, table["weekday"]).replace("$w", copied(day.capitalize() if chance(rng, 0.4) else day))


# Questions about any day: $at is place and day in any order, or nothing; $out "outside" where no place is named
ASK = [
    "what's the weather [like|going to be like|going to be|looking like] $at", "how's the weather [|looking|going to be] $at",
    "what will the weather be [like|] $at", "how will the weather be $at", "what's the [forecast|weather forecast|outlook|weather report] $at",
    "what does the forecast say $at", "what's it going to be like $out $at", "what's the weather supposed to be $at",
    "what [sort|kind] of weather [will we have|can I expect|are we getting|is coming|do they expect] $at",
    "is the weather [good|nice|bad|okay|decent|any good] $at", "will the weather be [good|nice|bad|okay|decent|better] $at",
    "any idea what the weather's [like|doing|going to do] $at",
    "do you know [the weather|what the weather will be like|how the weather will be] $at", "what can you tell me about the weather $at",
    "what are we in for weather-wise $at", "weather-wise, what's it like $at", "what's the weather doing $at",
    "will it be [nice|pleasant|lovely|fine|horrible|miserable|awful|beautiful] $out $at",
    "is it going to be [nice|nice weather|bad weather|a nice day|miserable|grim|gorgeous] $out $at", "what's the sky [like|going to be like] $at",
    "are we getting [nice|good|bad|decent|proper summer] weather $at", "how are conditions $out $at", "what does the sky look like $at",
    "how does the weather look $at", "how does it look $out $at", "what weather [do they have|are they getting|is expected|is forecast] $at",
    "is there any bad weather [coming|on the way|expected|forecast] $at", "would you mind [checking|looking up|telling me] the weather $at",
    "have you got the [weather|forecast|weather forecast] $at", "may I have the [weather|forecast] $at", "what's the weather going to bring $at",
]  # fmt: skip
RAIN = [
    "will it rain $at", "is it going to rain $at", "is it gonna rain $at", "does it look like rain $at",
    "any [rain|chance of rain|showers|rain expected|rain forecast|sign of rain|precipitation] $at",
    "is there [any rain|rain|a chance of rain|a risk of rain|going to be rain|rain coming|rain on the way|rain forecast] $at",
    "what are the chances of rain $at", "how likely is rain $at", "should I expect [rain|showers|a shower|a downpour] $at",
    "do I need [an umbrella|my umbrella|a raincoat|my raincoat|a rain jacket|rubber boots|wellies|waterproofs] $at",
    "will I need [an umbrella|my umbrella|a raincoat|a rain jacket|rubber boots|wellies] $at",
    "should I [take|bring|pack|carry|grab] [an umbrella|my umbrella|a raincoat|a rain jacket|a brolly] $at",
    "is it worth [taking|bringing|packing] an umbrella $at", "umbrella or no umbrella $at", "is it an umbrella [day|kind of day] $at",
    "will it be [wet|rainy|pouring|drizzly|soggy] $out $at", "is it going to be [wet|rainy|pouring|drizzly] $out $at",
    "will we [get wet|have rain|see rain|get some rain|get soaked] $at", "am I going to get [wet|soaked|rained on] $at",
    "can I leave [my|the] umbrella at home $at", "can I go without an umbrella $at", "do they expect rain $at",
    "is rain [expected|forecast|likely|on the cards|in the forecast] $at", "how much rain [will we get|is coming|is expected] $at",
    "will it [pour|drizzle|shower|bucket down|stay wet|be raining] $at", "is it supposed to rain $at", "could it rain $at", "might it rain $at",
    "will I get wet [walking the dog|on my walk|on my run|on the way to work|without a coat] $at", "is it likely to rain $at",
    "when it comes to rain, what's expected $at", "will there be [rain|showers|any rain|much rain|heavy rain|drizzle] $at",
    "is the rain coming back $at", "will the rain [stop|ease off|continue|go on|let up] $at",
    "should I wear [rain boots|a raincoat|something waterproof] $at",
]  # fmt: skip
DRY = [
    "will it [stay|be|keep] dry $at", "is it going to [stay|be] dry $out $at",
    "can I hang [the washing|the laundry|my laundry|the sheets|the clothes] [out|outside|out to dry] $at",
    "can I dry [the laundry|the washing|my clothes] outside $at", "should I hang the [laundry|washing] [outside|out] $at",
    "will the [washing|laundry] dry outside $at", "is it a good [day|time] for the washing line $at",
    "can we [have a barbecue|barbecue|grill|have a picnic|eat outside|sit outside|have dinner outside|eat in the garden] $at",
    "is it [barbecue|BBQ|picnic|grill|beach|garden|ice cream] weather $at", "will it be [barbecue|BBQ|picnic|beach|swimming] weather $at",
    "is it good weather for a [barbecue|picnic|hike|walk|bike ride|swim|run|beach day|garden party|day trip] $at",
    ("is the weather [good enough|okay|fine|right|suitable] for a [barbecue|picnic|hike|walk|bike ride|run|boat trip|round of golf|garden "
     "party] $at"),
    ("can I [go by bike|cycle|bike|ride my bike|take the bike|walk|go for a run|go jogging|go running|mow the lawn|wash the car|paint the "
     "fence] $at without getting wet"),
    "should I [take|go by|use] [the|my] bike $at or will it rain",
    "is it dry enough to [mow the lawn|cycle|play tennis|paint the fence|camp|hike] $at",
    "will we be able to [eat|sit|play|celebrate] outside $at", "would a [barbecue|picnic|garden party|hike|bike tour] work $at, weather-wise",
    "will the weather hold $at", "is it good cycling weather $at",
    "is the weather good for [cycling|hiking|sailing|camping|gardening|fishing|golf|surfing|the beach|tennis|football|photos] $at",
    "do I have to water the [garden|plants|lawn|tomatoes|flowers] $at or will it rain",
    "should I water the [garden|lawn|flowers] $at or is rain coming",
    "can I leave the [windows|roof window|convertible top|car windows] open $at or will it rain",
    "can I leave the [cushions|toys|bike|garden furniture] outside $at or will it rain", "can the kids play outside $at or is it raining",
    "is it going to be nice enough to [eat outside|swim|barbecue|go to the beach|sit on the balcony] $at",
    "will it be warm enough to [swim|eat outside|sit outside|go without a jacket|wear shorts|sleep with the window open] $at",
    "will the weather be good enough for [the barbecue|our picnic|the match|a hike|the party|the wedding|the school trip|the race] $at",
    "is a [barbecue|picnic|bike ride] a good idea $at, weather-wise",
    "how's the weather for [a barbecue|a picnic|hiking|cycling|the beach|sailing|a walk] $at",
]  # fmt: skip
SUN = [
    "will it be sunny $out $at", "is it going to be sunny $out $at", "will the sun [shine|come out|be out|show itself] $at",
    "is the sun going to [shine|come out|be out] $at", "any [sun|sunshine|blue sky] $at",
    "do I need [sunglasses|my sunglasses|sunscreen|sun cream|a sun hat|suncream] $at",
    "will I need [sunglasses|my shades|sunscreen|sun cream|a sun hat] $at",
    "should I [wear|bring|pack|take|put on] [sunscreen|sunglasses|my sunglasses|sun cream|a hat] $at", "is it going to be cloudy $at",
    "will it be [cloudy|overcast|grey|clear|foggy|misty|hazy] $at", "how [sunny|cloudy|foggy] will it be $at",
    "will there be [sun|sunshine|clouds|fog|clear skies|any sun|a clear sky] $at",
    "is there any [sun|sunshine|fog|mist] [expected|forecast|in the forecast|coming] $at", "will the sky be [clear|blue|grey|cloudy] $at",
    "will we [see the sun|have sunshine|get some sun|see the stars] $at", "is it sunglasses weather $at",
    "can I expect [sun|sunshine|clear skies|blue skies|fog] $at", "how much sun [will we get|is expected|can I expect] $at",
    "can I [sunbathe|get a tan|lie in the sun] $at", "are clear skies expected $at", "will the fog [lift|clear|go away] $at",
]  # fmt: skip
COLD = [
    "will it be [cold|chilly|cool|freezing|icy|frosty|warm|hot|mild|boiling|humid|muggy] $out $at",
    "is it going to be [cold|chilly|freezing|icy|frosty|warm|hot|mild|scorching|humid] $out $at",
    "how [cold|warm|hot|chilly|mild] will it [be|get] $out $at", "how [cold|warm|hot|chilly] is it going to [be|get] $out $at",
    "what's the temperature [|going to be|supposed to be] $out $at",
    "what temperature [will it be|can I expect|do they expect|is expected|is forecast|are we looking at] $out $at",
    "how many degrees [will it be|are expected|will we have|are we getting] $out $at", "what will the temperature be $out $at",
    "what's the [high|low|temperature|maximum temperature] $at",
    ("do I need [a coat|my coat|a jacket|a warm jacket|a sweater|gloves|a scarf|a hat and gloves|a winter coat|long johns|my warm boots|a "
     "hoodie|thermals|a beanie] $at"),
    "will I need [a coat|a jacket|a sweater|gloves|a scarf|a warm coat|a cardigan|a fleece] $at",
    "should I [wear|take|bring|pack|put on] [a coat|a jacket|a sweater|gloves|a scarf|something warm|a warm jumper|layers] $at",
    "[coat or no coat|jacket or no jacket|shorts or trousers|jumper or t-shirt|sandals or boots|shorts or jeans] $at",
    "can I [wear|go out in] [shorts|a t-shirt|a dress|sandals|short sleeves|a skirt] $at",
    "is it [shorts|t-shirt|jacket|coat|sweater|sandal|scarf] weather $at", "what should I wear for the weather $at",
    "how should I dress for the weather $at",
    ("will it [freeze|be below zero|drop below zero|get below freezing|stay above zero|be minus degrees|warm up|cool down|get colder|get "
     "warmer|heat up] $at"),
    "is it going to [freeze|drop below zero|be below zero|warm up|cool down|get colder|get hotter] $at",
    "is there [frost|a frost|ground frost|ice|black ice|a heatwave] [coming|expected|forecast|on the way] $at",
    "any [frost|ice|frost forecast|chance of frost|black ice] $at",
    "will there be [frost|a frost|ice on the roads|black ice|a frost warning|a heatwave] $at",
    ("do I have to [scrape the car|scrape ice off the windscreen|protect the plants from frost|bring the plants in because of frost|cover "
     "the plants because of frost] $at"),
    "will my [plants|tomatoes|geraniums|seedlings|pipes] freeze $at", "will the [roads|streets|pavements|sidewalks] be icy $at",
    "is it cold enough for [gloves|a coat|a scarf|boots|a hat] $at",
    "is it warm enough for [shorts|a t-shirt|a swim|sandals|the pool|a dress|the beach] $at",
    "will it be too [hot|cold|warm] for [a run|a hike|the dog|the kids|the beach|a walk] $at", "what will the thermometer say $at",
    "how low will the temperature [go|drop|fall] $at", "how high will the temperature [go|climb] $at", "is a heatwave coming $at",
]  # fmt: skip
WIND = [
    "will it be [windy|stormy|breezy|gusty|blustery] $out $at", "is it going to be [windy|stormy|breezy|gusty] $out $at",
    "how [windy|stormy|breezy] will it [be|get] $out $at", "how strong will the wind be $at",
    "will there be [wind|a storm|storms|thunder|thunderstorms|strong winds|lightning|gusts|a thunderstorm|hail] $at",
    "is there [a storm|a thunderstorm|thunder|bad weather|strong wind|a gale|a hurricane|hail] [coming|expected|on the way|forecast] $at",
    "any [storms|wind|thunder|thunderstorms|storm warnings|gales|hail|strong winds] $at",
    "is a storm [coming|brewing|on its way|expected|forecast] $at", "are there any [weather warnings|storm warnings] $at",
    "do I have to [take in the awning|tie down the trampoline|close the parasol|secure the garden furniture] because of wind $at",
    "is it too windy [to fly a kite|for an umbrella|for the parasol|for cycling|to sail|for the drone] $at",
    "can I fly [a kite|my kite|my drone] in this weather $at", "is it good kite weather $at", "what's the wind [like|doing|going to be like] $at",
    "how's the wind $at", "should I expect [a storm|strong wind|thunder|thunderstorms|gusts] $at", "will it [thunder|storm|hail|blow hard] $at",
    "is it going to [thunder|storm|hail|blow a gale] $at", "will it snow $at", "is it going to snow $at",
    "any [snow|chance of snow|snow forecast|flurries] $at",
    "will there be [snow|fresh snow|a snowstorm|a blizzard|powder|enough snow to sled] $at",
    "is there [snow|any snow|fresh snow|snow coming|snow on the way|snow forecast] $at",
    "how much snow [will we get|is coming|is expected|will fall] $at", "will we have [snow|a white morning|a blizzard] $at",
    "do I need [snow boots|winter tyres|snow chains|to shovel snow] $at", "should I expect [snow|sleet|a blizzard] $at",
    "is snow [expected|forecast|likely|on the cards] $at", "could it snow $at", "does it look like snow $at", "can we build a snowman $at",
]  # fmt: skip
CURT = [
    "rain $at", "raining $at", "umbrella $at", "umbrella needed $at", "coat needed $at", "jacket needed $at", "sunny $at", "cold $out $at",
    "warm $out $at", "hot $out $at", "windy $out $at", "snow $at", "frost $at", "storm $at", "sun $at", "dry $at", "wet $at",
    "any good weather $at", "nice weather $at", "bad weather $at", "barbecue weather $at", "how cold $at", "how warm $at", "how hot $at",
    "how windy $at", "how many degrees $at", "what temperature $at", "sunglasses needed $at", "shorts okay $at", "freezing $at", "icy $at",
    "foggy $at", "rain again $at", "more rain $at", "still cold $at", "still sunny $at", "weather okay $at", "weather any better $at",
    "gloves needed $at", "good day for a [walk|barbecue|run|bike ride|picnic|swim] $at, weather-wise", "sunscreen needed $at", "forecast $at",
    "weather $at", "what weather $at",
]  # fmt: skip
FUTURE = [("", p) for p in ASK + ASK + DRY + SUN + COLD + COLD + WIND + CURT] + [("rain", p) for p in RAIN + RAIN]

# Questions about the present, without a day; $now is "right now" or nothing, $in the place or nothing
PRESENT = [
    "is it raining $out $in $now", "is it [still|already|really] raining $out $in $now", "is it snowing $out $in $now",
    "is it [cold|chilly|warm|hot|freezing|mild|nice|windy|sunny|cloudy|foggy|wet|icy|stormy|humid|dry] $out $in $now",
    "how [cold|warm|hot|chilly|windy] is it $out $in $now", "how's the weather $out $in $now", "what's the weather like $out $in $now",
    "what's the weather $in $now", "what's it like $out $in $now", "what's the temperature $out $in $now", "how many degrees is it $out $in $now",
    "how many degrees are there $out $in $now", "what does the weather look like $out $in $now", "is the sun [shining|out] $in $now",
    "is it pouring $out $in $now", "is it [storming|drizzling|hailing|thundering] $out $in $now",
    "is there [snow|rain|fog|a storm|frost|thunder] $out $in $now", "what's it doing $out $in $now, weather-wise",
    "is it above zero $out $in $now", "is it below [zero|freezing] $out $in $now", "is it minus degrees $out $in $now",
    "has it [stopped|started] [raining|snowing] $in", "what temperature is it $out $in $now",
    "how [strong|bad] is the [wind|rain|storm] $in $now",
    "do I need [a coat|a jacket|an umbrella|sunglasses|gloves|sunscreen|a scarf|a hat] $in $now",
    "can I go out without [a coat|a jacket|an umbrella|a hat] $in $now", "is it [coat|shorts|jacket|umbrella|t-shirt|barbecue] weather $in $now",
    "what kind of weather do [we|they] have $in $now", "is the sky clear $in $now", "what is the weather $in $now", "hows the weather $in $now",
    "whats the weather like $in $now", "how does it look $out $in $now, dry or wet", "is it as cold as it looks $out $in $now",
    "what does the thermometer [say|show] $out $in $now", "is it wet $out $in $now",
    "is it too [hot|cold|wet|windy] to go [out|for a walk|for a run] $in $now", "how hot is it getting $in $now",
    "is the weather any good $in $now",
]  # fmt: skip

COMMANDS = [
    "check the [weather|forecast|weather forecast|temperature] $at", "tell me the [weather|forecast|temperature|weather forecast] $at",
    "give me the [weather|forecast|weather report|weather forecast|outlook] $at", "show me the [weather|forecast|weather forecast] $at",
    "look up the [weather|forecast] $at", "get me the [weather|forecast|weather report] $at", "get the [weather|forecast] $at",
    "read me the [weather|forecast|weather report|weather forecast] $at",
    ("find out [what the weather will be like|what the weather is like|if it will rain|whether it's going to rain|how cold it will be|how "
     "warm it gets|if it will snow|if it stays dry] $at"),
    "tell me [if|whether] it [will|is going to] [rain|snow|be cold|be warm|be sunny|be windy|freeze|stay dry|be hot|be nice|get icy] $at",
    "tell me [if|whether] I [need|will need] [an umbrella|a coat|a jacket|sunglasses|sunscreen|gloves|a raincoat|a sweater|a scarf] $at",
    "tell me how [cold|warm|hot|windy|sunny|wet] it [will be|is going to be|gets] $at",
    "tell me what the weather [is|will be|is going to be] [like|] $at",
    ("let me know [if|whether] [it will rain|it's going to rain|there will be frost|I need an umbrella|it will snow|I should take a coat|it "
     "stays dry|a storm is coming] $at"),
    "see [if|whether] [it will rain|it's going to rain|it's going to snow|it will be sunny|it stays dry|I need a coat] $at",
    ("check [if|whether] [it will rain|it's going to rain|it's going to be warm|I need an umbrella|it stays dry|it will freeze|it's going "
     "to snow|there is a storm coming|the sun will shine] $at"),
    "describe the weather $at", "fetch the [weather|forecast] $at", "bring up the [weather|forecast] $at",
    "pull up the [weather|forecast|weather forecast] $at", "say what the weather will be $at", "fill me in on the weather $at",
    "update me on the weather $at", "give me [a|a quick] weather [update|report|summary] $at", "give me an idea of the weather $at",
    "do a [quick |]weather check $at", "have a look at the [weather|forecast] $at", "take a look at the [weather|forecast] $at",
    "tell me about the weather $at", "tell me what to expect from the weather $at",
    "look at the forecast $at and tell me if [it rains|I need an umbrella|it'll be dry|I need a coat]",
    ("help me decide [if I need a coat|if I need an umbrella|what to wear for the weather|whether it's bike weather|between coat and "
     "t-shirt] $at"),
    "tell me the chance of rain $at", "give me the [temperature|chance of rain|temperatures] $at",
    "look up [if it will rain|whether it's raining|how cold it is|how warm it will be] $at",
]  # fmt: skip
STATEMENTS = [
    "weather $at", "weather $at", "weather $at", "forecast $at", "the weather $at", "the forecast $at", "weather forecast $at",
    "weather report $at", "temperature $at", "rain $at", "snow $at", "chance of rain $at", "umbrella $at", "rain or shine $at",
    "I need the [weather|forecast|weather forecast|temperature] $at",
    "I'd like [the|to know the|to hear the] [weather|forecast|weather forecast] $at",
    "I want [the|to know the|to hear the] [weather|forecast] $at",
    "I want to know [if|whether] it [will rain|will snow|stays dry|will be warm|will freeze|will be sunny|will be windy] $at",
    ("I'd like to know [if|whether] it [will rain|is going to rain|will be cold|will be nice|will snow|will stay dry|gets warm|will be "
     "stormy] $at"),
    ("I need to know [if|whether] [it will rain|it's going to rain|I need a coat|I need an umbrella|it will freeze|there will be frost|the "
     "roads will be icy|it stays dry] $at"),
    "I wonder [if|whether] it [will rain|is going to rain|will snow|will be warm|gets cold|will be sunny|will clear up] $at",
    "I wonder what the weather [will be like|is like|is doing|has in store] $at",
    "I was wondering [about the weather|what the weather's like|if it will rain|if I need an umbrella|how cold it gets] $at",
    "I have no idea what the weather [will be like|is like|is doing] $at",
    "I don't know [if|whether] I need [an umbrella|a coat|a jacket|sunscreen|gloves] $at",
    "I'm not sure [if|whether] it [will rain|will be warm enough|is going to snow|stays dry] $at",
    "let's [see|hear|check|have] the [weather|forecast] $at", "let's see what the weather [is doing|will be like|brings] $at",
    "I hope it [doesn't rain|won't rain|stays dry|will be sunny|doesn't snow|is warm] $at, I need the forecast",
    "I'm curious about the weather $at", "time for the weather [report|forecast] $at", "I should know about the weather $at",
    "not sure what to wear for the weather $at",
    "I can't decide [whether I need a coat|whether I need an umbrella|between coat and jacket|if I need a raincoat], I need the weather $at",
    "the weather forecast $at", "temperature outside $at", "weather update $at", "weather info $at", "weather check $at", "sunny or cloudy $at",
    "hot or cold $at", "wet or dry $at", "I want to hear what the weather is up to $at", "I could use a weather [report|update|forecast] $at",
    "someone should tell me the weather $at",
]  # fmt: skip

# The day or the place in front of the noun: $d "tomorrow's", $p a place or nothing, $f the place with "for" or "in" or nothing
OWNED = framed(
    question=[
        "what's $d weather [|like|going to be|looking like] $f", "what's $d [forecast|weather forecast|temperature] $f",
        "how's $d weather [|looking] $f", "what is $d weather forecast $f", "what does $d forecast say $f", "how does $d weather look $f",
        "any rain in $d forecast $f", "is there any snow in $d forecast $f", "may I hear $d forecast $f",
        "is $d weather [good|any good|nice|bad] $f",
    ],
    command=[
        "tell me $d [weather|forecast|temperature] $f", "give me $d [weather|forecast] $f", "show me $d [weather|forecast] $f",
        "check $d [weather|forecast] $f", "read me $d [weather|forecast] $f", "look up $d [weather|forecast] $f",
        "get me $d [weather|forecast] $f",
    ],
    statement=[
        "$d [weather|forecast|temperature|weather forecast] $f", "$d [weather|forecast] $f", "I need $d [weather|forecast] $f",
        "I'd like $d [weather|forecast|weather forecast] $f", "let's hear $d [weather|forecast] $f",
    ],
)  # fmt: skip
PLACE_FIRST = framed(
    question=[
        "what's the $p weather $b", "what's the $p forecast $b", "how's the $p weather $b", "what's $p's weather like $b",
        "what's $p like $b, weather-wise",
    ],
    command=[
        "check the $p weather $b", "give me the $p [weather|forecast] $b", "show me the $p [weather|forecast] $b",
    ],
    statement=[
        "$p weather $b", "$p weather $b", "$p forecast $b", "$p, weather $b", "$p $b, weather", "$p $b, [rain or shine|hot or cold|wet or dry]",
        "temperature $p $b", "weather $p $b", "weather $p $b", "forecast $p $b", "weather $b $p", "rain $p $b", "$p temperature $b",
    ],
)  # fmt: skip
FOR_DAY = framed(
    question=[
        "what's the [weather|forecast|outlook|weather forecast|temperature] for $b $f", "what's the [weather|forecast] $f for $b",
        "what does the forecast say for $b $f", "how's it looking for $b $f, weather-wise", "is rain forecast for $b $f",
        "do they expect rain for $b $f", "is there a storm warning for $b $f", "is snow forecast for $b $f",
        "what are they saying about the weather for $b $f", "what's the weather looking like for $b $f", "what about the weather for $b $f",
        "[rain|sun|snow|frost|wind] for $b $f",
    ],
    command=[
        "give me the [weather|forecast|outlook|weather forecast] for $b $f", "give me the [weather|forecast] $f for $b",
        "tell me the [weather|forecast|temperature] for $b $f", "check the [weather|forecast] for $b $f",
        "show me the [weather|forecast] for $b $f", "look up the [weather|forecast] for $b $f", "read me the forecast for $b $f",
        "get me the weather for $b $f", "find the forecast for $b $f",
    ],
    statement=[
        "[weather|forecast|weather forecast|outlook|temperature] for $b $f", "weather $b $f", "weather $f for $b",
        "I need the [weather|forecast] for $b $f", "I'd like the [weather|forecast] for $b $f", "I want the forecast for $b $f", "forecast $b $f",
    ],
)  # fmt: skip

# With a journey or a plan; $t a place after "to", $i after "in", $at/$when a day in its phrase or nothing
JOURNEYS = framed(
    question=[
        ("I'm [going|driving|flying|travelling|heading|off|cycling] to $t $when, [what's the weather like there|do I need an umbrella|do I "
         "need a coat|will it rain|how cold is it there|will it be warm|should I take a raincoat|what should I wear for the weather]"),
        ("we're [going|driving|flying|travelling|heading|moving] to $t $when, [what will the weather be like|will it rain there|how warm "
         "will it be|is it going to be cold|will it be sunny|do we need coats|is there snow]"),
        ("I have a [meeting|flight|wedding|concert|job interview|race] in $t $when, [what will the weather be like|will it rain|do I need a "
         "coat|should I bring an umbrella|how warm will it be]"),
        "if I go to $t $when, [do I need a coat|will I need an umbrella|will I get wet|will it be cold|is it warm enough for shorts]",
        "my [parents|mother|sister|brother|son|daughter|friends|boss|in-laws] will be in $t $when, what's the weather like there",
        "[thinking of|planning on] going to $t $when, [is the weather any good|will it be dry|what's the forecast]",
        "we're spending $bare in $t, what will the weather be like",
        "I'm in $t $when, [do I need an umbrella|will it rain|what's the weather going to be|will it be cold|do I need sunscreen]",
        "what should I pack for the weather in $t $when", "what do I wear for the weather in $t $when",
        "what's the weather like over in $t $when", "what's the weather like up in $t $when", "what's the weather like down in $t $when",
        "how's the weather [over|down|up] in $t $when", "will it rain on my trip to $t $when", "do they have snow in $t $when",
        "are they getting rain in $t $when", "how will the weather be for my [trip|flight|drive] to $t $when", "is it raining over in $t",
        "is the weather in $t [any good|bad|nice] $when", "what's the weather in $t like $when",
        "is the weather in $t going to be [good|bad|nice|okay] $when", "has $t got rain $when",
        "is $t [sunny|rainy|cold|warm|hot|windy|wet|cloudy] $when", "will $t be [sunny|rainy|cold|warm|hot|windy|wet|cloudy|freezing] $when",
    ],
    statement=[
        "I'm [going|driving|flying|heading] to $t $when and I need the weather", "I'm packing for $t and need the weather there $when",
        "I'm off to $t $when, I'd like to know if it rains there", "we're visiting $t $when and I wonder if it will be warm",
        "trip to $t $when, I need the forecast",
    ],
)  # fmt: skip
PLANS = framed(
    question=[
        ("[I'm|we're] having [a barbecue|a garden party|people over for a barbecue|a picnic|a party in the garden|lunch outside] $when, "
         "will it [rain|stay dry|be sunny|be warm|be nice]"),
        ("[I|we] want to [barbecue|go hiking|have a picnic|go to the beach|paint the fence|go sailing|eat outside|go camping|cycle to work] "
         "$when, [will it rain|will it stay dry|what's the weather like|how's the weather|is the weather good enough]"),
        "I'm [cycling|walking|biking|running] to work $when, will I get wet",
        ("I'm [mowing the lawn|washing the car|planting tomatoes|hanging out the washing|painting the shed|going fishing|taking the kids to "
         "the park|walking the dog] $when, [will it rain|is it going to stay dry|what's the weather]"),
        ("the kids have [a football match|sports day|a school trip|swimming|a birthday party outside] $when, [will it rain|what will the "
         "weather be like|is it going to be cold|do they need coats]"),
        "if I hang out the washing $when, will it get wet", "if we [barbecue|picnic|camp|eat outside] $when, will it rain",
        "the tomatoes are still outside, is there frost $when", "I've left the plants outside, will it freeze $when",
        ("I'm going for a [run|walk|bike ride|swim|hike|stroll] $when, [do I need a jacket|will it rain|how's the weather|how cold is it|is "
         "it dry]"),
        "before I [go out|leave|head out] , [do I need an umbrella|what's the weather like|will it rain]",
        "I'm getting dressed, [what's the weather like|how cold is it|is it warm out] $when",
        "I'm about to leave, [do I need an umbrella|is it raining|do I need a jacket|how cold is it out there|what's it like outside]",
        "the sky looks dark, is it going to rain $when", "it looks grey out there, will it rain $when",
        "it's so [hot|cold|windy|grey] here, will it be better $when", "my hair just got done, is it going to rain $when",
        "I have new suede shoes, will it be wet $when", "do I take the bike or the car $when, is it going to rain",
        "good morning, what's the weather [|like|going to be] $when", "the dog needs a walk, is it raining", "bike or bus $when, will it rain",
    ],
    statement=[
        "I'm [leaving|heading out|going out] and don't know if I need [a coat|an umbrella|a jacket]",
        "I want to hang the washing outside $when if it doesn't rain, I need the forecast",
        "we want to barbecue $when but I don't know about the weather",
        "I'm planning a [barbecue|picnic|hike|bike tour|garden party] $when and need the forecast",
        "I'd like to cycle $when if it stays dry, I need the weather", "I'm getting dressed and need the weather $when",
        "the dog needs a walk and I don't know if it's raining",
    ],
)  # fmt: skip

NOW = ["", "", "", "", "right now", "now", "at the moment", "currently", "just now", "at present"]
OUT = ["", "", "", "outside", "outside", "out there", "out", "here", "around here", "in my area", "outdoors"]


def answer(rng, kind, place, day):
    """(result, reply) for that place ("" if none is named) and day."""
    if chance(rng, 0.025):
        error = one_of(rng, ERRORS if place else [e for e in ERRORS if "place" not in e])
        return {"error": error}, expand(rng, one_of(rng, SORRY), e=error)
    sky, adjective, wet, low, high = one_of(rng, SKIES)
    degrees = low + int(rng.random() * (high - low + 1))
    when = day.capitalize() if day in WEEKDAYS else {"": "", "weekend": "this weekend"}.get(day, day)
    on = "on " + when if day in WEEKDAYS else when
    where = f"in {place}" if place and "," not in place else ""
    if day in ("", "today"):
        there = "there are" if sky.endswith("s") else "there's"
        adjectives = ["it's $sky and $n $deg $where $on.", "it's $n $deg and $sky $where $on."]
        nouns = ["it's $n $deg with $sky $where $on.", there + " $sky $where $on, $n $deg."]
    else:
        adjectives = ["it will be $sky and $n $deg $where $on.", "it'll be $sky $where $on, $n $deg."]
        nouns = ["there will be $sky $where $on, $n $deg.", "it will be $n $deg with $sky $where $on."]
    patterns = adjectives if adjective else nouns
    head = one_of(rng, [f"{place} {on}", f"{on} in {place}"]) if place and day else place or on
    patterns = patterns + ["$sky, $n $deg $where $on.", "$sky and $n $deg $where $on."] + ([f"{head}: $sky, $n $deg."] * 2 if head else [])
    reply = expand(rng, one_of(rng, patterns), sky=sky, n=str(degrees), deg="degree" if abs(degrees) == 1 else "degrees", where=where, on=on)
    if kind == "rain" and ":" not in reply and chance(rng, 0.6):
        first = {"rain": ["Yes, ", "Yes, better take an umbrella: ", "Looks like rain: "], "dry": ["No rain: ", "No, ", "It should stay dry: "],
                 "snow": ["Yes, "]}  # fmt: skip
        if "snow" in sky:
            first["snow"] = ["Not rain, but snow: "]
        return {"sky": sky, "temperature": degrees}, one_of(rng, first[wet]) + reply
    return {"sky": sky, "temperature": degrees}, reply[0].upper() + reply[1:]


def about(rng, text, form, kind, place, day):
    arguments = {key: value for key, value in (("place", place), ("day", day)) if value}
    if not re.search(r"will it (rain|pour|drizzle|be wet)|to rain|raining|gonna rain|I (need|take|bring|pack|carry|grab|wear)|any rain", text):
        kind = ""  # no question that "yes" would answer
    result, reply = answer(rng, kind, "the " + place if f"the {copied(place)}" in text else place, day)
    return Request(text, form, [("get_weather", arguments)], [result], reply)


def spot(rng, share):
    """(text, value) of a place, or of none."""
    return mentioned(rng) if chance(rng, share) else ("", "")


def general(rng, patterns, form):
    """A pattern with $at: any combination of place and day, in any order, now and then in front."""
    r = rng.random()
    where, place = spot(rng, 0.45 if r < 0.6 else 0.6)
    day = some_day(rng) if r < 0.6 else ""
    kind, pattern = one_of(rng, patterns)
    fronts = ["in ", "in ", "in ", "in ", "in ", "in ", "over in "]
    if "forecast" in pattern or form != "question" and "weather" in pattern:
        fronts = fronts + ["for ", "for "]
    where = one_of(rng, fronts) + where if where else ""
    when = day_text(rng, day, WHEN) if day else ""
    if form == "statement" and chance(rng, 0.3):
        when = when.removeprefix("on ")
    parts = [where, when] if chance(rng, 0.6) else [when, where]
    at = " ".join(p for p in parts if p)
    out = one_of(rng, OUT) if not place else ""
    if at and pattern.endswith(" $at") and chance(rng, 0.12):
        front = at if chance(rng, 0.6) or not (where and when) else parts[0]
        rest = "" if front == at else parts[1]
        text = front + ", " + expand(rng, pattern, at=rest, out=out)
        form = "statement" if form == "command" else form
    else:
        text = expand(rng, pattern, at=at, out=out)
    return about(rng, text, form, kind, place, day)


def ask(rng):
    return general(rng, FUTURE, "question")


def present(rng):
    where, place = spot(rng, 0.45)
    pattern = one_of(rng, PRESENT)
    text = expand(rng, pattern, now=one_of(rng, NOW), out=one_of(rng, OUT) if not place else "", **{"in": "in " + where if where else ""})
    return about(rng, text, "question", "rain" if "is it raining" in text or "umbrella" in text else "", place, "")


def command(rng):
    return general(rng, [("", p) for p in COMMANDS], "command")


def statement(rng):
    return general(rng, [("", p) for p in STATEMENTS], "statement")


def noun(rng):
    """Tomorrow's weather, the forecast for friday, Oslo weather."""
    form, pattern = one_of(rng, one_of(rng, [OWNED, FOR_DAY, PLACE_FIRST]))
    first = "$p" in pattern
    where, place = spot(rng, 1 if first else 0.45)
    if first and where.startswith("the "):
        return noun(rng)
    day = some_day(rng) if not first or chance(rng, 0.55) else ""
    owner, alone = (day_text(rng, day, NOUN), day_text(rng, day, WHEN if first and chance(rng, 0.5) else BARE)) if day else ("", "")
    text = expand(rng, pattern, d=owner, b=alone, p=where, f=one_of(rng, ["in ", "in ", "in ", "for "]) + where if where else "")
    if text.count(" for ") > 1:
        return noun(rng)
    return about(rng, text, form, "rain" if text.startswith("is rain") else "", place, day)


def journey(rng):
    form, pattern = one_of(rng, JOURNEYS)
    where, place = mentioned(rng)
    day = some_day(rng) if "$bare" in pattern or "$when" in pattern and chance(rng, 0.6) else ""
    text = expand(rng, pattern, t=where, when=day_text(rng, day, WHEN) if day else "", bare=day_text(rng, day, BARE) if day else "")
    return about(rng, text, form, "rain" if "will it rain" in text or "an umbrella" in text else "", place, day)


def plan(rng):
    form, pattern = one_of(rng, PLANS)
    day = some_day(rng) if "$when" in pattern and chance(rng, 0.85) else ""
    text = expand(rng, pattern, when=day_text(rng, day, WHEN) if day else "")
    return about(rng, text, form, "rain" if text.endswith("will it rain") or "an umbrella" in text else "", "", day)


KINDS = [ask] * 38 + [present] * 14 + [command] * 12 + [statement] * 11 + [noun] * 13 + [journey] * 8 + [plan] * 6


def get_weather(rng):
    return one_of(rng, KINDS)(rng)


# Follow-ups: $w the day in its phrase, $b the day alone, $t the place, $i the place after "in"
OTHER_DAY = framed(
    question=[
        "and $w", "and $w", "and $w", "what about $b", "what about $b", "how about $b", "and for $b", "and what about $b", "and how about $b",
        "and how will it be $w", "what's it like $w", "what will it be like $w",
        "will it be [any better|better|warmer|colder|different|the same] $w", "and what's it like $w",
        "does it get [better|worse|warmer|colder] $w", "is it [better|any better|warmer|nicer] $w", "$b as well", "and is it the same $w",
        "how does it look $w", "and how is it $w", "what does $b look like", "how's $b looking", "$b too",
    ],
    command=[
        "check $b too", "do $b as well", "tell me about $b too", "show me $b as well", "make it $b", "give me $b too", "check again for $b",
        "tell me for $b", "look at $b as well",
    ],
    statement=[
        "now $b", "now for $b", "and $b", "the same for $b", "same for $b", "I meant $b", "I meant for $b", "sorry, $b", "no, $b", "actually $b",
        "$b, I meant",
    ],
)  # fmt: skip
OTHER_PLACE = framed(
    question=[
        "and in $t", "and in $t", "and in $t", "what about $t", "what about in $t", "how about $t", "how about in $t", "and $t",
        "and what about $t", "and for $t", "and how is it in $t", "is it [better|warmer|colder|nicer|any better|the same] in $t",
        "what's it like in $t", "and over in $t", "and what's it like in $t", "how does it look in $t", "$t too",
    ],
    command=[
        "check $t too", "do $t as well", "tell me for $t", "check it for $t", "show me $t too", "give me $t as well", "make it $t",
        "look at $t too", "try $t",
    ],
    statement=[
        "now $t", "now in $t", "now for $t", "the same for $t", "the same in $t", "same for $t", "same question for $t", "I meant in $t",
        "sorry, $t", "no, in $t", "no, $t", "actually $t", "$t, I meant", "not there, in $t",
    ],
)  # fmt: skip
BOTH = framed(
    question=[
        "and in $t $w", "and $w in $t", "what about $t $w", "how about $t $w", "and $t $w", "what about $w in $t", "and what's it like in $t $w",
    ],
    command=[
        "check $t $w too",
    ],
    statement=[
        "now $t $w", "no, in $t $w", "I meant in $t $w",
    ],
)  # fmt: skip
THERE = [
    "and will it rain there $w", "and what's it like there $w", "how about there $w", "will it be warm there $w",
    "and how cold does it get there $w", "do I need an umbrella there $w", "and is it sunny there $w", "will I need a coat there $w",
    "is it windy there $w", "and there $w", "does it snow there $w",
]  # fmt: skip


def get_weather_again(rng, arguments):
    """Another day, another place, or both."""
    place, day = arguments.get("place", ""), arguments.get("day", "")
    where, new_place = mentioned(rng)
    new_day = some_day(rng)
    if new_day == day or new_place == place:
        return None
    w, b = day_text(rng, new_day, WHEN), day_text(rng, new_day, BARE)
    r = rng.random()
    if r < 0.45:
        form, pattern = one_of(rng, OTHER_DAY)
        return about(rng, expand(rng, pattern, w=w, b=b), form, "", place, new_day)
    if r < 0.85:
        form, pattern = one_of(rng, OTHER_PLACE)
        return about(rng, expand(rng, pattern, t=where), form, "", new_place, day)
    if r < 0.93 or not place:
        form, pattern = one_of(rng, BOTH)
        return about(rng, expand(rng, pattern, t=where, w=w), form, "", new_place, new_day)
    return about(rng, expand(rng, one_of(rng, THERE), w=w), "question", "", place, new_day)


REQUESTS = {"get_weather": (8, get_weather)}
FOLLOWS = {"get_weather": get_weather_again}
