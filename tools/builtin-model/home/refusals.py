"""What no tool covers, and how the helper says so.

Each topic is a paragraph of TOPICS: first how it is answered ("do" verb phrases for "I can't …", "know" noun phrases for
"I don't know anything about …", "say" whole answers; split by " / "), then patterns: "!" commands, "?" questions,
"." statements, more than one on a line split by " / "; an indented line goes on. A slot that the answer names is copied.
"""

import re
from itertools import accumulate

from grammar import Request, chance, copied, expand, in_words, invented, one_of


def words(text):
    return [w.strip() for w in text.replace("\n", " ").split(",")]


def an(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


FIRST = words("""Tom, Anna, Lukas, Mia, Sarah, Ahmed, Priya, Jack, Olga, Pedro, Yuki, Ben, Emma, Noah, Lena, Carlos, Fatima, Grace, Henry, Ines,
James, Kate, Liam, Marta, Nina, Oscar, Paul, Quentin, Rosa, Sven, Tara, Uwe, Vera, Will, Xenia, Yara, Zoe, Bob, Alice, Greg, Molly, Dave, Karen, Mike,
Steffi, Jonas, Amir, Chloe, Dana, Eli, Finn, Gina, Hugo, Isla, Joel, Kim, Leo, Maya, Nora, Omar, Pia, Ruth, Sam, Theo, Ursula, Vince""")
LAST = words("""Miller, Okafor, Keller, Brandt, Santos, Novak, Singh, Yamada, Moreau, Rossi, O'Brien, Larsen, Petrov, Chen, Ali, Baker, Cohen, Diaz,
Evans, Fischer, Garcia, Hughes, Ivanov, Jansen, Kowalski, Lopez, Murphy, Nguyen, Olsen, Park, Quinn, Reed, Smith, Turner, Vogel, Walker, Young""")
KIN = words("""my mum, my mom, my dad, my sister, my brother, my wife, my husband, my boss, my aunt, my grandma, my grandpa, my daughter, my son,
my girlfriend, my boyfriend, my best friend, my uncle, my landlord, my cousin, my colleagues, my neighbour, my neighbor, my lawyer, my parents,
my teacher, the doctor, the dentist, the plumber, the office, the school, the bank, the vet, the neighbours, the police, the electrician,
the babysitter, mum, dad, grandma, the hairdresser, the insurance company, the landlord, the pharmacy, the restaurant, my team, the mechanic,
everyone, somebody""")
CITIES = words("""Paris, London, Berlin, Oslo, Rome, Madrid, Lisbon, Vienna, Prague, Dublin, New York, Chicago, Boston, Seattle, Toronto, Sydney,
Tokyo, Beijing, Cairo, Lagos, Nairobi, Mumbai, Istanbul, Athens, Zurich, Munich, Hamburg, Leeds, Manchester, Glasgow, Bristol, Lyon, Nice, Porto,
Krakow, Miami, Denver, Dallas, Lima, Bogota, Santiago, Havana, Seoul, Hanoi, Bangkok, Cape Town, Reykjavik, Tallinn, Geneva, Naples, Bath, Cork,
San Diego""")
COUNTRIES = words("""France, Germany, Norway, Italy, Spain, Portugal, Austria, Ireland, Canada, Brazil, Peru, Chile, Kenya, Egypt, Morocco, India,
China, Japan, Vietnam, Thailand, Australia, New Zealand, Iceland, Finland, Poland, Mongolia, Nepal, Cuba, Mexico, Turkey, Greece, Ukraine, Ghana,
Nigeria, Bolivia, Denmark, Sweden, Belgium, Croatia, Estonia, Argentina, Madagascar, Bhutan, Jordan, Switzerland, South Africa, the Netherlands,
the Philippines""")
FAMOUS = words("""Napoleon, Mozart, Shakespeare, Albert Einstein, Cleopatra, Leonardo da Vinci, Marie Curie, Isaac Newton, Julius Caesar, Columbus,
Gandhi, Beethoven, Picasso, Frida Kahlo, Abraham Lincoln, Queen Victoria, Elvis Presley, Charles Darwin, Aristotle, Goethe, Kafka, Van Gogh, Galileo,
Churchill, Nelson Mandela, Tolstoy, Jane Austen, Marco Polo, Socrates, Genghis Khan, Neil Armstrong, Bach, Rembrandt, Ada Lovelace, Alan Turing,
Nikola Tesla, Robin Hood, King Arthur, Charlie Chaplin, Agatha Christie, the president, the prime minister, the pope, the king of Sweden,
the mayor""")
ANIMALS = words("""frog, dog, cat, elephant, giraffe, penguin, octopus, shark, lion, tiger, horse, cow, sheep, hedgehog, squirrel, bee, spider, whale,
owl, eagle, kangaroo, panda, koala, crocodile, turtle, snail, butterfly, bat, goldfish, hamster, rabbit, wolf, bear, dolphin, parrot, dragon, unicorn,
dinosaur, mosquito, ant, snake, camel, goat, pig, duck, swan, lobster, jellyfish, mole, beaver, badger, fox, zebra, hippo, cheetah, sloth, llama,
ostrich""")
HERDS = words("cats, bees, owls, elephants, sharks, penguins, spiders, snails, whales, bats, giraffes, hedgehogs, cows, frogs, ants, eels")
FOODS = words("""a pizza, a large pepperoni pizza, some sushi, two burgers, a kebab, a curry, some dim sum, fried rice, a salad, fish and chips,
a burrito, three tacos, chinese food, thai food, indian food, a veggie burger, a margherita, some noodles, pad thai, a falafel, chicken wings,
a sandwich, a bucket of fried chicken, spring rolls, ramen, a calzone, a bagel with cream cheese, an ice cream, a birthday cake, pancakes, a doner,
dumplings, a family pizza with mushrooms, something to eat, dinner, lunch, breakfast, takeout, a takeaway, a poke bowl, tapas, a hot dog, waffles""")
SHOPS = words("""the italian place, the thai place, Luigi's, Golden Dragon, the usual place, the pizzeria, the burger place, the bakery, Mario's,
the corner shop, the deli, the indian around the corner, Sushi Palace, the snack bar, Burger Barn, the takeaway""")
DISHES = words("""lasagna, pancakes, tomato soup, risotto, goulash, apple pie, sourdough bread, chili, banana bread, carbonara, ratatouille, hummus,
paella, chicken curry, mashed potatoes, gnocchi, brownies, a cheesecake, an omelette, pad thai, pea soup, meatballs, guacamole, a quiche, ramen,
scones, fudge, roast chicken, potato salad, french toast, pesto, tiramisu, shepherd's pie, stuffed peppers, a sponge cake, falafel, dumplings,
kimchi""")
GOODS = words("""a new phone, running shoes, a birthday present, a sofa, concert tickets, a laptop, headphones, a bike, a winter coat, a book,
printer ink, a tent, two train tickets, a washing machine, a pair of jeans, a dress, flowers, lego, a mattress, a camera, a watch, dog food, a drill,
a keyboard, a suitcase, sunglasses, a lawn mower, a toaster, a lamp, a vacuum cleaner, new tyres, contact lenses, a guitar, a bookshelf, wallpaper,
a microwave, a fan""")
SITES = words("""amazon, ebay, the internet, etsy, the app store, the web shop, my account, that online store, the website, ikea's website""")
THINGS = words("""my bike, the car, my laptop, the printer, my phone, my glasses, the sofa, the washing machine, the fence, the roof, my shoes,
the sink, the kitchen table, the bathroom mirror, my keys, the garden chair, the toilet, the oven, the fridge, the wardrobe, my suitcase,
the bookshelf, the carpet, the windows, my guitar, the shed, the tap, the coffee machine, the kettle, the toaster, the tv, the dishwasher,
the old lamp, my jacket, my trousers, the radiator, the heater, the vacuum cleaner, my tennis racket, the piano, the boat, the chimney, the stairs,
the wall, the ceiling, my watch, the bathtub, the attic, the basement, the garage, my desk, the pram, the bin, the mailbox, the hedge, the pond,
the gutter, the barbecue, the silver, the dishes""")
ACTS = words("""paint, iron, fold, sharpen, polish, repair, fix, wash, sell, wrap, carry, assemble, sew, mend, glue, scrub, dust, lift, move, hide,
insure, bury, weigh, measure, draw, photograph, rent out, throw away, give away, replace, unblock, tidy, sand, varnish, break, smash, burn, decorate,
inspect, hold, catch, kick, hug, eat, steal, pack, unpack, deliver, pick up, take apart, put together, drill a hole in, climb onto, stand on,
jump over, bring me, lend me, hand me, pass me, find, look for, scan, mail, ship, weld, oil, grease, bleach, dry, hem, shrink, upholster""")
INVENTIONS = words("""the telephone, the light bulb, the kettle, the thermostat, the alarm clock, the radio, television, the fridge, the wheel,
the piano, the bicycle, the microwave, paper, the compass, the zipper, the vacuum cleaner, the washing machine, the calendar, chess, the elevator,
the toaster, velcro, the internet, gunpowder, the air conditioner, the egg timer, the remote control, the steam engine, glass, roller blinds,
the lawn mower, the sewing machine""")
WORKS = words("""Hamlet, the Mona Lisa, Moby Dick, The Magic Flute, Don Quixote, Frankenstein, Pride and Prejudice, Bohemian Rhapsody, Purple Rain,
Yesterday, the Bible, The Hobbit, War and Peace, Swan Lake, Dracula, the national anthem, Romeo and Juliet, Let It Be, Faust, Carmen, Ulysses,
Guernica, Candide, the Ninth Symphony, Winnie the Pooh, Treasure Island, Macbeth, Emma, Jungle Book, Alice in Wonderland, Lady in Red,
Yellow Submarine""")
SIGHTS = words("""the Eiffel Tower, the Nile, Mount Everest, the moon, the sun, the Great Wall, Big Ben, the Amazon, the Rhine, the Colosseum,
the Golden Gate Bridge, the Atlantic, the Dead Sea, the Grand Canyon, Lake Victoria, the Matterhorn, the Leaning Tower, the Danube, the Sahara,
Stonehenge, the Titanic, Mars, Jupiter, the Berlin Wall, the White House, the Statue of Liberty, the Taj Mahal, Kilimanjaro, the Thames,
the Mississippi, the Panama Canal, Loch Ness""")
SUBJECTS = words("""black holes, photosynthesis, the french revolution, quantum physics, inflation, volcanoes, the roman empire, vaccines,
electric cars, nuclear fusion, the water cycle, blockchain, dinosaurs, evolution, gravity, the stock market, jazz history, solar panels, heat pumps,
climate change, DNA, the cold war, the vikings, tectonic plates, opera, cricket rules, the offside rule, bees, artificial intelligence, light years,
the northern lights, the middle ages, buddhism, astrology, feng shui, glaciers, mummies, the speed of light, thunder, rainbows, tides, magnets,
batteries, the brexit, mushrooms, sourdough, wine, coral reefs, the big bang, infinity, stoicism, impressionism, haikus, the electoral system,
tax classes, compound interest""")
LANGUAGES = words("""french, spanish, german, italian, japanese, latin, greek, dutch, polish, russian, arabic, chinese, korean, swedish, turkish,
hindi, welsh, portuguese, finnish, norwegian, czech, swahili, hebrew, irish, thai, French, Spanish, German, Italian, Japanese""")
TERMS = words("""hello, thank you, good morning, cheese, butterfly, I love you, where is the station, homework, umbrella, apple, goodbye, friend,
kitchen, necessary, rhythm, onomatopoeia, accommodate, serendipity, quinoa, embarrass, mischievous, ubiquitous, ephemeral, light, lamp, alarm,
weather, timer, happy birthday, cheers, one beer please, the bill please, receive, conscience, bureaucracy, entrepreneur, dog, music, tomorrow,
window, spoon, melancholy""")
TEAMS = words("""Bayern, Liverpool, Arsenal, Real Madrid, the Lakers, the Yankees, Dortmund, Barcelona, the national team, Chelsea, Juventus,
the Bulls, Celtic, the Red Sox, Ajax, the Packers, the home team, Manchester United, the Rangers, the Warriors, Inter, the Giants, Leeds,
the All Blacks""")
SPORTS = words("""football, tennis, hockey, baseball, basketball, rugby, handball, cricket, formula one, golf, soccer, ski jumping, darts, cycling,
boxing""")
COMPANIES = words("""Apple, Tesla, Siemens, Google, Amazon, Toyota, Volkswagen, Microsoft, Nestle, Intel, Sony, Boeing, Shell, Nike, Samsung, bitcoin,
gold""")
APPS = words("""facebook, instagram, whatsapp, twitter, tiktok, snapchat, linkedin, discord, telegram, youtube, netflix, spotify, slack, zoom, teams,
signal, reddit, pinterest, gmail, tinder, google maps, excel, minecraft""")
GAMES = words("""chess, hide and seek, poker, tic tac toe, a board game, cards, twenty questions, hangman, checkers, trivia, monopoly, backgammon,
scrabble, uno, a quiz, rock paper scissors, i spy, charades, sudoku, dominoes, battleship, truth or dare, solitaire, a video game, a game, tag,
catch""")
PLACES = words("""the airport, the station, the nearest hospital, the beach, the city centre, the post office, the supermarket, the gym, work, home,
the zoo, the swimming pool, the next gas station, the museum, the library, the cinema, the pharmacy, the bakery, the town hall, the football stadium,
the hotel, the bank, the mall, the hardware store, the dentist, the bus stop, the theatre, the park, the next charging station, the butcher,
the garden center""")
EVENTS = words("""a meeting, an appointment, a dentist appointment, a call, a video call, a haircut, a date, a doctor's appointment, a party,
an interview, a dinner with $first, a meeting with $first, a visit, a job interview, a check-up, a lunch, a viewing, a massage, a parents' evening,
a lesson""")
WHENS = words("""tomorrow, tonight, on friday, on monday, next week, at 8 pm, at noon, for 7 o'clock, tomorrow at 6, for saturday night,
at half past three, this weekend, for 3 pm, on tuesday at 10, right now, at once, today, next month, in an hour, before lunch, on the 5th, at 4,
in 20 minutes, this evening""")
ILLS = words("""a headache, a fever, back pain, a cold, a rash, a sore throat, hay fever, a burn, a bee sting, high blood pressure, insomnia, a cough,
a stomach ache, toothache, a sprained ankle, the flu, a hangover, migraines, a nosebleed, a splinter, a stiff neck, sunburn""")
DEVICES = words("""fridge, oven, kettle, heater, dishwasher, tv, vacuum cleaner, robot vacuum, toaster, coffee machine, freezer, fan, washing machine,
dryer, microwave, air conditioner, radio, lamp, router, blender, hair dryer, electric blanket, humidifier, boiler, thermostat""")
COLORS = words("red, blue, green, yellow, old, big, tiny, wooden, broken, new, rusty, golden, striped, second, spare, heavy, silent, purple, grey")
NOUNS = words("""bench, ladder, kite, trampoline, trombone, anchor, barrel, basket, blanket, bucket, canoe, crown, doll, drum, envelope, feather,
flag, hammer, helmet, jar, kayak, lantern, map, mask, mirror, net, parcel, pillow, puzzle, raft, rope, saddle, scarf, shovel, skateboard, sledge,
statue, stone, sword, tablet, throne, tractor, trolley, umbrella, vase, violin, wagon, wheelbarrow, whistle, windmill, yacht, zipper, treehouse,
stroller, aquarium, bonsai""")
WISHES = words("""fly, become invisible, win the lottery, travel through time, walk on water, speak with animals, live on the moon, be a millionaire,
stop ageing, read minds, breathe under water, be famous, go to space, find true love, be taller, have superpowers, meet a ghost, see the future,
never sleep again""")


def mostly(items, other):
    """A slot of a list that gives one value in six a composed or invented one."""
    return lambda rng: other(rng) if chance(rng, 1 / 6) else one_of(rng, items)


def any_noun(rng):
    noun = one_of(rng, NOUNS) if chance(rng, 0.6) else invented(rng)
    return one_of(rng, COLORS) + " " + noun if chance(rng, 0.4) else noun


def owned(rng):
    return one_of(rng, ["the ", "my ", "our ", one_of(rng, FIRST) + "'s ", "that ", "this "]) + any_noun(rng)


def full_name(rng):
    return (one_of(rng, FIRST) if chance(rng, 0.6) else invented(rng, True)) + " " + (one_of(rng, LAST) if chance(rng, 0.6) else invented(rng, True))


def somebody(rng):
    return one_of(rng, [one_of(rng, ["Dr. ", "Mrs. ", "Mr. ", "Ms. ", "Professor "]) + one_of(rng, LAST), "Aunt " + one_of(rng, FIRST),
                        "Uncle " + one_of(rng, FIRST), full_name(rng), invented(rng, True)])  # fmt: skip


def person(rng):
    draw = rng.random()
    return one_of(rng, KIN) if draw < 0.45 else one_of(rng, FIRST) if draw < 0.8 else somebody(rng)


def invented_place(rng):
    return one_of(rng, ["", "", "Port ", "Saint ", "New ", "Upper "]) + invented(rng, True) + one_of(rng, ["", "", "ville", "burg", "ton", "ia"])


SLOTS = {
    "person": person,
    "first_b": lambda rng: one_of(rng, FIRST),
    "word_b": invented,
    "city_b": lambda rng: one_of(rng, CITIES),
    "famous_b": lambda rng: one_of(rng, FAMOUS),
    "dish_b": lambda rng: one_of(rng, DISHES),
    "team_b": lambda rng: one_of(rng, TEAMS),
    "sport_b": lambda rng: one_of(rng, SPORTS),
    "app_b": lambda rng: one_of(rng, APPS),
    "first": lambda rng: one_of(rng, FIRST) if chance(rng, 0.85) else invented(rng, True),
    "full": full_name,
    "famous": mostly(FAMOUS, full_name),
    "city": mostly(CITIES, invented_place),
    "country": mostly(COUNTRIES, invented_place),
    "animal": mostly(ANIMALS, lambda rng: one_of(rng, COLORS) + " " + one_of(rng, ANIMALS)),
    "a_animal": lambda rng: an(one_of(rng, ANIMALS)),
    "animals": lambda rng: one_of(rng, HERDS),
    "food": mostly(FOODS, lambda rng: one_of(rng, ["some ", "two ", "a plate of ", "a portion of "]) + invented(rng)),
    "shop": mostly(SHOPS, lambda rng: invented(rng, True) + one_of(rng, ["'s", " Grill", " Palace", ""])),
    "dish": mostly(DISHES, lambda rng: one_of(rng, ["", "vegan ", "spicy "]) + invented(rng)),
    "goods": mostly(GOODS, lambda rng: an(any_noun(rng))),
    "site": lambda rng: one_of(rng, SITES),
    "thing": mostly(THINGS, owned),
    "act": lambda rng: one_of(rng, ACTS),
    "invention": mostly(INVENTIONS, lambda rng: "the " + any_noun(rng)),
    "work": mostly(WORKS, lambda rng: one_of(rng, ["The ", ""]) + one_of(rng, COLORS).capitalize() + " " + one_of(rng, NOUNS).capitalize()),
    "sight": mostly(SIGHTS, lambda rng: one_of(rng, ["Mount ", "the river ", "Lake ", "the planet ", "the tower of "]) + invented(rng, True)),
    "subject": mostly(SUBJECTS, lambda rng: invented(rng) + one_of(rng, ["s", "ism", "ology", " theory"])),
    "language": lambda rng: one_of(rng, LANGUAGES),
    "term": mostly(TERMS, invented),
    "team": mostly(TEAMS, lambda rng: one_of(rng, ["FC ", "the ", ""]) + invented(rng, True)),
    "sport": lambda rng: one_of(rng, SPORTS),
    "company": mostly(COMPANIES, lambda rng: invented(rng, True)),
    "app": mostly(APPS, lambda rng: invented(rng, True)),
    "game": mostly(GAMES, invented),
    "place": mostly(PLACES, lambda rng: "the " + invented(rng, True) + one_of(rng, [" museum", " hotel", " bridge", " mall", " street"])),
    "when": lambda rng: one_of(rng, WHENS),
    "ill": lambda rng: one_of(rng, ILLS),
    "device": mostly(DEVICES, any_noun),
    "noun": any_noun,
    "wish": lambda rng: one_of(rng, WISHES),
    "word": invented,
    "number": lambda rng: one_of(rng, [str(rng.randint(2, 400)), in_words(rng.randint(2, 60))]),
    "event": lambda rng: expand(rng, one_of(rng, EVENTS), first=one_of(rng, FIRST)),
    "year": lambda rng: str(rng.randint(1200, 2024)),
}

TOPICS = """
do: order food / order $food / get food to your door
! order [|me|us] $food [|from $shop|for tonight|for dinner|for two|to my place] / get [me|us] $food [delivered|from $shop|to go]
! have $food delivered [|to my house|to the office|tonight] / order in [|tonight|from $shop]
? [where can I get|who delivers] $food [around here|nearby|at this hour] / how about ordering $food [|for the kids|tonight]
. I [want|would like] $food [delivered|from $shop|brought here] / I'm [starving|so hungry], [order|get] [me|us] $food / $food from $shop please

do: call a taxi / order a ride / call a cab
! [call|get|order|book|hail] [|me|us] a [taxi|cab|ride|rideshare] [|to $place|to $city|$when|for $person] / send a [car|cab|taxi] to $place
? how much is a [taxi|cab] to $place / can a [taxi|driver] pick [me|us] up $when
. I need a [ride|lift|taxi|cab] to [$place|$city] [|$when] / taxi to [$place|$city] [|$when]

do: write e-mails / send e-mails / handle your mail
! [write|send|draft|compose] an [e-mail|email] to $person [||about the invoice|saying I'm late|about $when]
! [email|e-mail|mail] $person [|that I'm sick|the report|about the meeting|my shopping list|the photos]
! [read|check|open|delete|sort|answer] my [emails|e-mails|mail|inbox|spam] / reply to $person's [email|e-mail|message] [|with yes|and say thanks]
! forward [this|the mail] to $person / unsubscribe me from [that|the $word] newsletter
? [do I have|are there] [any|] [new|unread] [emails|e-mails|mails] [|from $person] / did $person [write|email|answer] [me|] [|today]

do: send messages / write to $person / text anyone
! [text|message|whatsapp] $person [||that I'm on my way|I'll be late|and ask about dinner|happy birthday]
! send [a|] [text|message|sms|voice message] to $person [|saying I miss you|that dinner is ready]
! send $person a [text|message|heart|picture of $thing|postcard]
! tell $person [that I'm late|I love $first|to come home|that dinner is ready|the code|I said hi]
! ask $person [if the shop is open|for the keys|what time the party starts|how it went]
! let $person know [I'm running late|that we are leaving|I'm home] / read [me|] my [messages|texts|voicemail]
? what did $person [write|text|say] / any [new|] messages [|for me|from $person]

do: make phone calls / call $person / phone anyone
! [call|phone|ring|dial|ring up|facetime|video call] $person / call $person [on the phone|on $app|back|at work|$when] / give $person a [call|ring]
! make a [phone|] call [|to $person] / hang up [|on $person|the phone] / put me through to $person / dial [$number|the office number|zero]
! [answer|pick up] the phone / redial the last number
? who [called|rang|phoned] [|me|today|while I was out] / what is $person's [phone number|number|address|e-mail address]
. get $person on the phone / I [want|need] to talk to $person [|on the phone|now] / [get me|connect me with] $person

say: I can't make calls. Please dial the emergency number yourself. / I can't call for help, please phone the emergency services at once. / I have no
    phone. If it is urgent, call the emergency number. / Please ask a person for help, I cannot call anybody.
! call [an ambulance|the police|the fire brigade|the fire department|911|112|999|a doctor] / get [an ambulance|help|the police]
. [there's a burglar|I hear a burglar|somebody is] in the [house|garden|garage]
. [there's been an accident|my child swallowed something|someone is hurt|he is not breathing|I smell gas|I think I broke my arm]
. [help|help me|I need help], [I fell down the stairs|call someone|it's an emergency]

do: make bookings / book that / book anything / make reservations
! book [|me|us] [a table|a hotel|a flight|a room|a train|a massage|a holiday|a court|seats|a cruise|two tickets] [|in $city|to $city|at $shop|for
    $number people] [|$when]
! [reserve|get] [|us|me] a table [at $shop|for $number|for two] [|$when] / make a reservation [at $shop|for $number|for two|in $city] [|$when]
! cancel my [flight|booking|reservation|hotel|trip|table|order|subscription|gym membership|credit card|ticket] [||to $city]
! change my [flight|booking|reservation|seat] [|to $city|to $when] / check [me|us] in for [my|our] flight [|to $city]
! rent [me|us] a [car|bike|van|boat] [|in $city|for the weekend]
! find [me|us] a [cheap|nice|] [hotel|flight|apartment|holiday home|campsite] [in|to|near] $city
? are there [any|] [flights|trains|rooms|tickets] [left|] [to|in] $city
. I'd like [a table|a room|two seats] at $shop [|$when] / two tickets to $city [please|$when]

do: shop online / order things / buy $goods
! [buy|order] [|me|us] $goods [on|from] $site / order $goods [online|on the internet|from the catalogue]
! [return|send back] [the|my] [parcel|shoes|order] [|to $site] / track my [parcel|package|order|delivery|shipment] / compare prices for $goods
! find [me|] [a good deal on|the cheapest price for|a discount code for] $goods
? where is my [parcel|package|delivery|order] / where can I [buy|get|find] $goods [|nearby|cheaply|in $city]
? how much [is|does] $goods [|cost] [|on $site|these days] / when will my [parcel|order] [arrive|come]

do: handle money / make payments / deal with banks
! pay [my|the] [rent|electricity bill|phone bill|taxes|credit card|invoice|gas bill|fine|parking ticket|$person] [|online|$when]
! [transfer|send|wire] [$number] [dollars|euros|pounds] to $person / [check|show|tell] me my [bank balance|account balance|credit score]
! withdraw [$number] [dollars|euros] [|from my account] / open a [bank account|savings account|account at the bank]
! close my [bank account|account|credit card account] / invest my savings [|in $company] / do my [taxes|tax return|accounts|bookkeeping]
! calculate my [taxes|pension|mortgage rate|body mass index|horoscope|carbon footprint] / split the bill with $person
! lend me [$number] [dollars|euros|pounds|bucks]
? how much [money|] [do I have in the bank|is on my account|did I spend last month|do I earn] / [has|did] [my salary|$person's money] [arrive|come in]
? how much [is|was] [the electricity bill|our rent|the heating bill] / can I afford $goods

know: stock prices / the markets / money matters
! [check|look up|tell me] the [stock price|share price|price] of $company
? [how is|what's] $company [doing|trading at|worth] [|today|at the moment]
? what's the [exchange rate|price] of [the dollar|bitcoin|the pound|the euro|gold|oil|$company] / should I [buy|sell] $company [|shares|stock] [|now]
? how did the [market|stock market|dow|nasdaq] [do|close] [|today|yesterday] / how many euros [are|do I get for] $number [dollars|rupees|yen|francs]
! convert $number [dollars|yen|british pounds|pesos] to [francs|euros|rupees|bitcoin]

know: the news / what goes on in the world / politics
! [read|tell|give] me the [news|headlines|latest news|sports news|local news]
! [catch me up on|brief me on|update me on] [the news|politics|$sport|the elections|$country]
? what's [in the news|going on in the world|happening in $city|new in politics|the latest on $famous|the latest from $country]
? [any|is there any|is there] news [|today|about $famous|from $country|about $team] / who won the election [|in $country|in $year]
? what happened [yesterday|in $city|in $year|in $country|last night|at the summit]
. [news|headlines|the news|latest headlines|breaking news]

know: sports / sports results / $sport
? who won the [$sport|$sport] [game|match|final|cup|race|world cup] [||last night|yesterday|in $year]
? did $team [win|lose|play] [|yesterday|last night|on saturday] / [what's|what is|what was] the score [||of the $team game|between $team and $team_b]
? how did $team [play|do] [|last night|on sunday|this season] / when will $team play [|next|again] / what time is the [$team|$sport] [game|match]
? what [channel|station] is the [$sport] on / who is the [coach|captain|best player|goalkeeper] of $team
? how many [goals|points|medals] did $full score
! tell me the [score|result] of the $team game
. [$sport|$team] [results|scores|table]

know: routes and traffic / the roads / the way to $place / distances
! [navigate|drive|guide|route|bring|take] me to [$place|$city] / [give me|show me] [directions|the way|the route|the fastest way] to [$place|$city]
! show me [$city|$place|$country] on [a|the] map
! find [the nearest|a] [parking space|pharmacy|petrol station|gas station|atm|toilet|supermarket] [|near $place]
! turn [left|right] at [the|] [next corner|the lights|$city street] / park the car [|in the garage]
? how far is [|it to] [$city|$place|$sight] [|from here|from $city_b] / how do I get to [$place|$city] [|from here|by train|by bus|without a car]
? how long [does it take|is the drive|is the flight|do I need] to [$place|$city|$country]
? how's [the|] traffic [|to $city|on the highway|downtown|on the way to $place]
? is there any [traffic|accident|road work] [on the motorway|on the highway|near $city]
? where is the [nearest|next|closest] [pharmacy|bakery|atm|hospital|bus stop|supermarket|florist|post office] / where [am I|are we]
? which [road|way|bus|train|exit] [goes|leads] to [$place|$city]
. directions to [$place|$city] / I'm lost [|in $city] / way to $place

know: timetables / trains and buses / opening hours
? when [is|does] [my|the next|the last|the first] [train|bus|flight|ferry|tram|subway] [|to $city] [leave|go|arrive|leaving]
? when is [my|the next|the last] [train|bus|flight|ferry|tram] [|to $city|home]
? what time does [the store|the shop|the bank|the library|the supermarket|the pool|$shop|the museum|the post office] [open|close] [|today|tomorrow|on
    sunday]
? what time is [my|the] [flight|train|meeting|interview|exam|movie|film|appointment|party|concert|lesson]
? what time does the [film|movie|concert|show|game|school|party|bus] [start|end|begin|finish]
? when does [$shop|the market|the post office|the pharmacy|the gym|school|the film] [open|close|start]
? is [$shop|the bakery|the pharmacy|the supermarket] [open|still open|closed] [|today|on sunday|now] / until when is $place open
? is [my|the] [train|flight|bus] [|to $city] [on time|late|delayed|cancelled]
? which [platform|gate|terminal] [does|is] [my|the] [train|flight] [|to $city] [leave from|at]
. [opening|closing] [hours|times] of $place / train [times|timetable] to $city

know: geography / $country / faraway places
? [what's|what is|whats] the [capital|population|currency|flag|national dish|language|biggest city|longest river|highest mountain|area] of $country
? how many people live in [$city|$country] / [where is|where's|where exactly is] [$city|$country|$sight]
? how [tall|old|big|long|deep|far away|large|famous] is $sight
? what is the [tallest|highest|longest|deepest|oldest|largest|smallest|hottest|driest|coldest] [building|river|mountain|lake|country|city|place|
    desert|island] [|in the world|on earth|in $country|in europe]
? which [river|countries|sea|continent] [is|are|lies] [in|near|next to] $country
? is $city [in $country|bigger than $city|worth a visit|a nice place|expensive|safe] / what language do they speak in $country
? how many [countries|states|continents|oceans|islands|time zones] are there [|in the world|in europe|in $country] / what is $city [famous|known] for
! name [the|all] [countries|continents|oceans|capitals] [|of the world|in africa|of europe]
! list [the|all] [planets|continents|us presidents|states|countries in asia|kings of $country|months in $language]
! tell me [about|something about|more about] [$country|$city|$sight]
. [capital|population|president|king|history] of $country

know: people and history / history / $famous / what happened in the past
? who [was|is] [$famous|$full|the parents of $famous] / when [was $famous born|did $famous die|was $famous crowned|did $famous live|
    was $famous elected]
? how old is [$famous|$full|$person|the earth|the universe|this house|$sight]
? who [wrote|painted|composed|sang|sings|directed|recorded|starred in] $work / who [invented|discovered|came up with|built|made the first] $invention
? when was $invention invented / when [was|were] [$city|$company|the united nations] founded
? when was [the opera house|$sight] [discovered|built|opened]
? who is the [president|king|queen|prime minister|chancellor|mayor|richest person] of [$country|$city]
? who was the [first|last|second|youngest] [man on the moon|president|emperor|king|queen|woman in space] [|of $country]
? when [did|was] [the war|the second world war|the french revolution|the plague|the stone age|the battle of $city] [end|begin|start|over]
? why did [the romans|the dinosaurs|$famous|the vikings|$team] [disappear|die|leave|lose|become famous] / what is $famous [famous|known] for
? is $famous [still alive|dead|married|rich|german|from $country] / what happened in $year / who was [king|president|emperor|pope] in $year
? where was [$famous|$full] born / how [tall|rich] [is|was] [$famous|$full]
! tell me [about|something about|a fact about|the biography of] [$famous|$full]

know: science / $subject / how such things work
? [what is|what are|what's|explain what is] [$subject|a black hole|a neutron|an atom|a prime number|a light year|a noun|an isotope|a $word]
? what can you tell me about $subject / what do you know about [$subject|$famous|$country|$animals]
? how does [gravity|a heat pump|inflation|a vaccine|nuclear fusion|wifi|the internet|a solar panel|a $word] work / how does a [$device] work
? why is the [sky blue|grass green|sea salty|moon so bright|sun hot|ocean deep|earth round|snow white]
? why [do cats purr|do leaves turn red|do we dream|do onions make us cry|do people yawn|do stars shine|are flamingos pink|do mosquitoes bite]
? [what's|what is] the [temperature|melting point|boiling point|density|weight|mass|diameter] of [the sun|the moon|lava|gold|water|iron|lead|Mars|
    helium|a star]
? how [hot|warm|bright] is [the sun|lava|a star|the center of the earth|a lightning bolt|venus]
? at what temperature does [water|iron|chocolate|butter|gold|wax] [boil|melt|freeze|burn]
? what is the [speed of light|speed of sound|formula of water|chemical symbol for gold|volume of a sphere|volume of a cone|area of a circle|square
    root of $number|cube root of $number|value of pi|golden ratio|periodic table]
? what's the volume of [a sphere|a cube|a cone|a swimming pool|the earth|a bathtub|this box] / how loud is [a jet engine|$a_animal|a chainsaw|thunder]
? is $number a prime number / how [fast|long|tall|heavy|old|smart|loud|strong|dangerous|big] is $a_animal
? how [fast|long|far|deep] can $a_animal [run|live|jump|dive|swim] / how many [legs|teeth|hearts|eyes|bones|wings] does $a_animal have
? what [do|eats] $animals [|eat|drink|do in winter] / are $animals [dangerous|blind|mammals|clever|colour-blind|nocturnal|loyal]
? can $animals [swim|fly|see in the dark|hear music|climb|smell fear] / do $animals [sleep|dream|bite|hibernate|feel pain|like music]
? how many [stars|planets|bones|atoms|cells|moons] [are there|does the body have|has jupiter]
? how do [clouds|rainbows|tides|volcanoes|hurricanes] form / what causes [thunder|earthquakes|tides|cancer|hiccups|rainbows]
? which [planet|metal|animal|gas|bone] is the [biggest|smallest|lightest|hardest|fastest]
? how many [calories|grams of sugar|vitamins|proteins] are in [a banana|an egg|a glass of wine|$food|a cookie]
? how much does $a_animal [weigh|eat|cost|sleep] / how much [power|electricity|water] does [the|a] $device use
! explain $subject [|to me|to a child|in simple words] / [tell me|teach me] [about|something about|all about] $subject
! solve [for x|this equation|x squared equals nine|the riddle|this crossword clue] / prove [that|] [$word's theorem|the earth is round|god exists]
! plot [the sine function|a graph of x squared]
. $subject, how does that work

know: words and languages / $language / spelling
! translate [$term|this|my letter|the menu|that] [to|into] $language / say $term in $language / spell [$term|the word $term] [|for me]
! define [$term|$subject] / [correct|check|proofread] my [spelling|grammar|letter|essay]
! teach me [$language|some $language|$number words of $language|a new word] / speak [$language|slower|in rhymes|like a pirate] [|with me]
! switch [|the language] to $language
? how do you [spell|pronounce|write] $term / how [do you say|do I say|would you say] $term in $language
? what does [$term|the word $term] mean [||in english|in $language] / what is the [plural|opposite|past tense|meaning|origin|definition] of $term
? what rhymes with $term / what's another word for $term / what is $term in $language
? is $term [a word|spelled with two c|a verb|masculine in $language] / how many letters [are in $term|does the word $term have]
. $term in $language

know: cooking / recipes / how to make $dish
! [give|find|show|read] me a recipe for $dish / [find|suggest] [a|] [recipe|something] [with|without] [rice|eggs|chicken|leftovers|$word]
! cook [|me|us] [dinner|$dish|something nice|lunch] / bake [|me|us] [a cake|bread|$dish|cookies]
! make [me|us] [a sandwich|$dish|breakfast|a snack|some lunch]
? how do [I|you] [make|cook|bake|prepare] $dish / how long [do|should|must] [I|you] [boil|cook|fry] [an egg|$dish|potatoes|rice|pasta|a steak]
? how long will $dish [take|keep|last] / what can I [cook|make|bake] with [eggs|rice|leftover chicken|$word]
? what [should|shall|can] [I|we] [cook|eat|have for dinner] [|tonight|today] / what goes [well|] with $dish / what [is|goes] in [$dish|a $word]
? is [this milk|the chicken|$dish|the yoghurt] still [good|fresh|safe to eat] / can I [freeze|reheat|eat raw] $dish
? can [I|the kids|vegans] eat $dish [|every day|on a diet]
. [recipe for|best recipe for] $dish / I don't know what to cook [|tonight]

know: medicine / health / $ill
? what [helps|is good|can I take|should I do] [against|for|about] $ill / how do I [treat|cure|get rid of|prevent] $ill
? [should I|do I need to] see a doctor [|about $ill|with $ill] / is [$ill|aspirin|coffee|this mole|fasting] [dangerous|contagious|healthy|harmful]
? how many [pills|tablets|drops|vitamins] [can|should|may] I take / what are the [symptoms|causes|side effects] of [$ill|aspirin|diabetes|$word]
? how many [hours of sleep|cups of coffee|glasses of water|steps] [do I need|are healthy]
? how do I [lose weight|sleep better|stop smoking|get fit|build muscle]
! take my [temperature|blood pressure|pulse] / lower my [blood pressure|cholesterol|heart rate] / [heal|cure] my [knee|back|cat|hand|cough|headache|
    hiccups]
! give me [a massage|a diet plan|a workout plan|a painkiller|yoga exercises]
. I [have|think I have|woke up with] $ill

know: legal matters / the law / contracts
? is it [legal|illegal|allowed|against the law] to [park here|record calls|grow $word|keep $a_animal|barbecue on the balcony]
? can [my landlord|my boss|$person] [sue me|raise the rent|fire me|keep the deposit|kick me out]
? can I [sue $person|break my contract|paint the rented flat|work on sundays]
? how do I [get a divorce|apply for a visa|write a will|register a car|get a passport|found a company]
? what [is the fine for speeding|are my rights as a tenant|is the minimum wage|is the retirement age]
? do I need a [visa|licence|permit] [for $country|for $a_animal|to fish]
! write [my will|a contract|a letter to the landlord|a complaint to $company] / [sue|report] $person / renew my [passport|licence|insurance|visa]

do: write texts / write such things / write code or poems
! write [|me] [a poem|an essay|a song|a letter|a speech|a cv|a blog post|a novel|a report|a love letter|a rap|lyrics|a limerick] [||about $subject|
    for $person|about $a_animal|on $subject]
! write [|me] [a program|some code|a python script|a website|a shell script|html|an app|a regex] [|that sorts numbers|for my shop|in rust|for $app]
! [debug|explain|review|fix] [my|this] [code|script|program|program in java]
! [summarize|summarise|shorten] [this|the|my] [article|book|text|chapter|report|meeting] / do my [homework|maths homework|essay|job|presentation]
! [print|scan|copy|fax|sign|staple|shred] [the|my] [letter|document|contract|report|shopping list|ticket]
! convert [my|this|the] [file|video|photo|document|text|song] to [pdf|mp3|word|jpeg|upper case|png]
! convert my [garage into a gym|attic into an office|van into a camper] / convert me to [buddhism|veganism|minimalism|your religion]
! [open|close|save|delete|rename|zip|download|upload] [the|my|this] [file|pdf|document|spreadsheet|presentation|browser|folder|app|tab]
! compose [a melody|a symphony|a song] [|about $subject|for $person]
! make [me|] a [powerpoint|spreadsheet|presentation|website|logo|business plan] [|about $subject|for $shop]
? can you [code|program] [|in python|an app|a website]
. I need [an essay|a poem|a speech] about $subject

say: I have no opinion on that, I'm only the helper of this house. / That's for you to decide. / I'm not the one to ask, I only look after the house.
    / I can't advise you on that. / I'd rather leave that to you. / I have no opinion about that, sorry.
? what do you think [of|about] [$famous|$subject|$person|$country|$team|my outfit|the government|my new hair|$app|$dish]
? [should I|do you think I should] [quit my job|marry $first|get $a_animal|buy a house|dye my hair|call $first back|forgive $person|move to $city|
    have kids|study medicine|learn $language]
? who [should I|will you|would you] vote for
? which is better, [coffee or tea|cats or dogs|$city or $city_b|$app or $app_b|$dish or $dish_b|$sport or $sport_b|$team or $team_b]
? [do you prefer|do you like] [cats or dogs|summer or winter|$city or $city_b|tea or coffee|$team or $team_b]
? what's your [opinion on|view on|take on] [$subject|$famous|$country|$team]
? is [$famous|$app|$country|$first|$work] [better than|worse than|as good as] [$famous_b|$app_b|$first_b] / does $first [love|like|hate] me
? am I [pretty|too old|too fat|a good person|right|smart] / is there [a god|life after death|life on mars|such a thing as luck]
? what is the meaning of life / how [do I tell|should I tell] $person [the truth|that I quit|about $first]
? what should I [give|get] $person for [her|his|their] birthday / what should I [say to|tell|write to] $person
? how can I [make friends|be happy|win $first back|impress $person]
? who is [the best singer|the greatest player|right|the most beautiful|smarter, me or $first]
! [recommend|suggest] [|me] [a book|a film|a movie|a restaurant|a series|a name for my $animal|a hobby|a wine]
! give me [advice|some advice|your opinion|dating tips|a tip for $person's birthday] [|about $person|on $subject]
! choose [a name|an outfit|a university|a winner|a colour for my nails] for me / decide for me

do: take pictures / show pictures / take photos or videos
! [take|snap|shoot|make] a [photo|picture|selfie|video|screenshot] [|of me|of us|of $thing|of $person]
! show me [a picture|photos|a video|pictures] of [$a_animal|$famous|$city|$person|our holiday|my wedding|$sight]
! [edit|crop|delete|print|post|share] [my|the|this] [photo|photos|picture|selfie|pictures of $first]
! turn [my|this] photo into a [cartoon|painting|puzzle] / draw [|me] [a picture|$a_animal|a map|a portrait of $person|$a_animal on a bike]
! [film|record] [me|the baby|$person|the party|the meeting|this call] / upload [the|my] [pictures|video] to $app
? what is [in this picture|on this photo|that in the sky] / how do I look [|today|in this dress]

do: play games / play $game
! play [$game|a round of $game] [|with me|with us|with $person|against me] / [start|begin] a [game|round|match] of $game
! teach me [|how to play] $game
! play [dead|dumb|the fool|with the dog|with the cat|a trick on $person|a prank on $person|fetch with $first|football with the kids|along]
! pause [the|my] game / [roll|throw] [a|the] [die|dice|ball|dart] / [flip|toss] a coin
! [ask|give] me a [riddle|quiz question|brain teaser|trivia question] / guess [my weight|what I'm thinking|my name|how old I am|who I met]
! pick a [number|card] [|between one and ten|from one to $number]
? [shall|can|could|should] we play [$game|$game together] / [do you|can you|wanna|do you want to] play $game [|with me] / whose turn is it
? what are the rules of $game / what's the best [move|opening] in $game
. let's play $game / I [want to|wanna] play $game [|with you]

do: manage calendars / make appointments / look into your calendar
! [make|set up|schedule|arrange|plan|book] $event [|$when] [||with $person|in $city]
! [put|enter|write] $event [in|into] my [calendar|diary|agenda] [|$when]
! set up [a meeting|a call|an appointment|a video conference] [|with $person] [for|at] [3 pm|noon|10 o'clock|half past nine]
! [cancel|postpone|reschedule|confirm] [my|the] [appointment|meeting|dinner|date|interview|lesson|call] [|with $person]
! move [my|the] [appointment|meeting|dinner|interview|lesson|call] [|with $person] to [friday|next week|3 pm|noon|the afternoon|monday]
! invite $person [|to dinner|to the party|over] [|$when] / [block|check|open|sync|share] my [calendar|diary]
! plan [my|our] [week|holiday|wedding|birthday party|trip to $city]
? what's [on|in] my [calendar|diary] [|today|tomorrow|on friday|this week]
? [do I have|have I got] [any|] [appointments|meetings|plans|events] [|today|tomorrow|on monday]
? when is [my|$person's|the] [next meeting|dentist appointment|birthday|wedding|party|anniversary|exam|wedding anniversary]
? am I [free|busy] [$when|on friday|tomorrow] / who am I [meeting|seeing] [today|tomorrow]

do: lock or open doors / move doors / open or close that / reach the doors
! [lock|unlock|bolt|open|close|shut|slam] the [front door|back door|door|garage door|garden gate|gate|cellar door|patio door|main door|door to the
    balcony|barn door]
! [open|close|shut] the [windows|window|skylight|cat flap|cupboard|drawer|safe|fridge door|tent]
! [lock|unlock] [up|the house|the car|my bike|everything|the safe|my phone|the shed]
! [let|buzz] [the dog|the cat|$person|them|the delivery man|the guests] [in|out]
! [show me|check] the [camera|cameras|doorbell camera|security camera|baby cam|camera in the garden]
! [arm|disarm|activate] the [alarm system|burglar alarm|security system|house alarm] / [open|answer] the door [|for $person|for the dog]
? is the [front door|garage door|gate|back door|car|window] [locked|open|closed|shut] / [who is|who's] at the door / who rang [the bell|at the door]
? did [anyone|somebody|$person] [come to the door|ring|break in]
? [what's|what is|tell me] the [alarm code|wifi password|pin of my card|door code|code for the gate|safe combination|password for $app]
? did I [lock|close] the [door|car|garage|gate]
. the [door|gate|garage] [must be|should be] locked / lock [up|] the house $when

do: do housework / do that without hands / $act $thing / do anything with $thing
! $act $thing / $act $thing / $act $thing [|$when|for me|for $person] / $act [the|my|this] $noun / [wash|iron|hem|sew|dye] [the|new|my] curtains
! [do|wash|dry] the [dishes|laundry|washing-up|ironing|windows] / [make|change] [my|the|$first's] bed
! take [out the trash|the bins out|the rubbish out|the dog out|the parcel in|the laundry down]
! set [the table|the table for $number|up the tent|up the printer|up the ladder|up my new phone|a mouse trap|the scene]
! light [a candle|the candles|a match|a cigarette|the birthday cake|the incense|a torch|a firework]
! turn [the page|the pancake over|the steak|the mattress over|the soil|the compost|the key|the pig on the spit]
! open [the wine|a bottle of wine|this jar|a can of beans|the umbrella|the letter from $person|the parcel]
! kill the [spider|fly|mosquito|wasps|weeds|mold|rats]
! remove the [stain|stains|snow|spider|rust|wallpaper|sticker|dents] from [$thing|the driveway|the carpet]
! [change|replace] the [batteries|light bulb|bulb|nappy|tyres|sheets|smoke alarm batteries|filter|oil]
! [clean|descale|repair|defrost|unclog] the [$device|toilet|shower|sink] / [repair|fix|replace|sell|clean] my [$device|car|bike|screen|watch]
! put the [kids to bed|baby to sleep|dishes away|car in the garage|books back|toys away|$noun down]
! bring [me|us] [a beer|a glass of water|my slippers|the newspaper|coffee|$thing|an aspirin]
! get [me|us] [a glass of water|a beer from the fridge|a towel|my jacket|$thing] / pour [me|us] [a drink|some wine|a coffee]
! [plant|pick|cut] [some|the] [flowers|apples|roses|hedge|tomatoes|grass] / stir the [soup|sauce|pot]
! [chop|peel|slice|grate|mash] the [onions|potatoes|carrots|cheese]
? [where are|have you seen] my [keys|glasses|shoes|headphones|socks|car keys]
? [where is|where's] [my phone|my wallet|$person|the remote|my other sock|$thing] / who [left|broke|ate|took|moved|bought|hid] $thing
. the [sink|toilet|drain] is [blocked|clogged|leaking]
. [my|the] [bike|$noun|$device|car|printer] [is broken|is dirty|needs repair|makes a funny noise|has disappeared|fell over]
. there's [a spider|a wasp|a mouse|a hole|water] in [the kitchen|my room|the bathroom|the basement|the $noun]
. I [lost|can't find] [my keys|my phone|$thing]

do: look after pets / do anything for $animals / look after animals
! feed [the cat|the dog|my fish|the chickens|$first's $animal|the birds|our $animal] / walk [the dog|$first's dog|our puppy]
! [brush|wash|pet|catch|train|groom|bathe] [the|our|my] [cat|dog|$animal|puppy|parrot] / clean the [litter box|aquarium|cage|stable]
! teach [the dog|my parrot|$first] [to sit|to talk|a trick|$language]
? has [anyone|somebody] fed [the cat|the dog|the fish] / where is [the cat|the dog|our $animal|my $animal]
? why does my $animal [bark|scratch|bite|sleep so much|eat grass|smell] / what should I [feed|call|name] my $animal
. [the cat|the dog|my $animal] [ran away|is sick|won't eat|is hungry]

do: look after children / look after people / do anything with the children
! [watch|babysit|bathe|dress|feed|comfort|entertain] [the kids|the baby|the twins|my son|my daughter|$first]
! [pick up|fetch|collect|drop off] [the kids|$first|my daughter|$person] [|from school|at $place|$when]
! take [the kids|$first|grandma|me] to [school|bed|$place|the doctor|dance class]
! help [$first|my son|my daughter|the kids|me] with [the|] [maths|homework|packing|$language|the move] / [wash|cut|braid|dye] [my|$first's] hair
! tell [the kids|$first|the children] to [be quiet|go to bed|clean up|come down|stop fighting]
? what did [the kids|$first|my daughter] [do|learn|eat] [at school|today] / when do the [kids|holidays|school holidays] [come home|start|end|begin]
? where is $person [|right now|today] / is [$person|$first] [at home|asleep|in the garden|still at work|here]
. [the baby|$first] [is crying|won't sleep|has a fever|lost a tooth]

do: use apps or social media / use $app / do that on the internet
! add [me|$person] on $app / [post|share|tweet] [this|a picture|that I'm happy|something nice] [|on $app]
! [open|install|delete|update|uninstall|log into|log out of] $app / [follow|block|unfollow|friend] [$famous|$person|$full] [|on $app]
! [google|look up|search for|search the web for|research] [$subject|$famous|$goods|$full|flights to $city]
! [search|browse] the [internet|web] [|for $subject|for $goods]
! [connect|pair|link] [my phone|the headphones|my watch|$thing] [|with you|over bluetooth|to the wifi]
! [update|upgrade|charge|unlock|find|back up] my [phone|computer|laptop|tablet|watch]
! change [the|my] [password|wifi password|wallpaper|ringtone|pin|profile picture|relationship status]
! set [my status to away|a new password|my pin|my profile picture|a new ringtone|a wallpaper|me up on a blind date]
! remove the virus from my [computer|laptop|phone] / change the channel [|to $number] / [switch|turn] [the tv|it] to channel $number
! rewind [the movie|the film] [|a bit] / [subscribe to|like] [$first's channel|that video|my own post] [|on $app]
? [what's|what is] on [tv|television|$app|at the cinema] [tonight|today|right now|this weekend]
? how many [followers|likes|friends] do I have [|on $app] / is [the internet|$app|the wifi] [down|slow|working]
? why is [the internet|my phone|my computer|$app] so slow
? [what song is this|what's this song called|who sings this|which album is this from|who is this singer]
? how [much|many] [battery|storage|data|photos] [is|are|do I have] [left|] on my phone

do: do magic / work wonders / grant wishes / do that, it would be magic
! turn [me|$person|yourself|the dog] into [$a_animal|a frog|a prince|stone|gold|a $noun]
! turn [water into wine|back time|lead into gold|the tide|the night into day]
! make [me|us|$person] [rich|happy|famous|younger|invisible|laugh|fall in love with me|disappear|a star|taller|king]
! make it [snow|rain frogs|summer again|christmas|friday already]
! stop the [rain|war|wind|car|noise outside|neighbours from shouting|world|clock from ageing|madness]
! raise [my salary|the titanic|the flag|the drawbridge|an army|the dead|my children]
! lower [the rent|my taxes|gas prices|the price of $goods|the flag|the drawbridge|your expectations]
! skip [school|monday|dinner|the meeting|to the end of the year] [|for me] / switch [places|seats|shifts|brains|bodies] with [me|$person]
! run [for president|a marathon|to the store|away with me|a virus scan|after the bus] [|for me]
! start [a fire|a war|a family|a revolution|a company|a band] [|with me|for me] / close [your eyes|the deal|the book|ranks|the gap]
! close [my|the] [jacket|suitcase|umbrella|zipper]
! [build|create|construct] [me|us] [a rocket|a castle|a time machine|a robot|a treehouse|$goods|a house]
! [beam|teleport|fly|carry|shoot] [me|us|$person] to [the moon|mars|$city|the future|$place]
! give me [a kiss|a hug|a foot rub|a million dollars|a pony|$a_animal|superpowers|a present|$thing]
! [predict|tell me|read me] [the future|my fortune|my horoscope|the lottery numbers]
! [marry|kiss|hug|tickle|punch|arrest|haunt|adopt|scare] [me|$person|the neighbours]
! [dance|jump|swim|run|smile|swear|cry|sneeze|dream|levitate|moonwalk] [|for me|with me|for us]
! [sing|hum|whistle] [happy birthday|something|a song|for me|$work] [|to $person|in $language]
! [summon|slay|ride|hatch|train|clone] [a dragon|$a_animal|a unicorn|the kraken|a $word]
! turn [down the job offer|down the invitation|down $person's proposal|in my homework|the car around|the other cheek|thirty again]
! switch [my phone plan|banks|schools|to solar power|my insurance]
! set [a world record|sail for $city|me free|fire to the shed|a good example|a budget|the record straight|a date for the wedding]
! [vote|pray|fight|breathe|sleep|work|exercise|eat|shower] for me / conquer [the world|$country|mars]
! count [the stars|the sheep|to a million|my money|how many people are here] / [bring|take] [back|] [my youth|the dinosaurs|me to your leader]
! add [years to my life|a pool to the garden|a second floor to the house|me to your prayers|$first on $app] / dim [my hopes|the sun|the moon]
! wake the [dead|neighbours]
? [can you|could you|will you] make me [invisible|rich|immortal|fly|younger]
? what will [happen tomorrow|I be in ten years|the lottery numbers be|my wife look like] / what number am I thinking of
. I [wish I could|want to|would like to|wish you'd help me to] $wish
. I wish [I were $a_animal|it were christmas|I had a $noun|you were human|$first were here]

do: steer robots / steer machines like that / drive vehicles
! [send|launch|fly|deploy] the [drone|rocket|helicopter|spaceship|submarine|toy plane]
! [drive|park|wash|refuel|fill up|tow] the [car|truck|van|motorbike|tractor|boat] / [drive|fly|sail] [to $city|me to work|around the block|to $place]
! send the [robot|butler|maid|android] to [get milk|the shop|$place|fetch $thing|answer the door]
! [order|command|teach|tell] the robot to [dance|fetch $thing|bring me a beer|attack|cook] / warp to [mars|$city|the next galaxy]
! fire the [cannon|laser|torpedoes|rockets]
? how much [petrol|gas|fuel|charge] is [left|] in the car / where did I park [|the car]

do: see what is on or off / check that / measure that / look into that
? how much time is left [|on the timer|on the $word timer|for the pasta|on my timer]
? [which|what|how many] [timers|alarms] [are|do I have] [running|set|active] / is the [oven|kettle|tv|heater|iron|stove|fan] [still|] [on|running]
? did I [leave|forget to turn off] the [oven|stove|iron|light|tap] [|on]
? [are the|are there any] lights [still|] on [|in the kitchen|upstairs|in the house] / how [loud|bright] is it [in here|right now|in the kitchen]
? is [anybody|someone|$first] [home|in the house|upstairs|in the garage]
? how much [electricity|power|gas|water] did [we|I] use [|today|this month|last year]
? what's [my heart rate|my weight|my step count|the air pressure in my tyres] / [what's|what song is|which song is] playing [|now|right now]
? who [turned off the lights|turned the heating up|left the light on|set the alarm|changed the volume|opened the blinds]
? why [is the lamp flickering|won't the light work|does the heater smell|is the tv so small|are the blinds stuck|did the alarm not ring]
? when did [you turn off the heater|I set that timer|you last open the blinds|the washing machine finish]
? how long has the [$device|oven|tv|light] been on / how much does a [lamp|$device|new thermostat|smart speaker] cost
? how do I [change a light bulb|clean a lamp|tie a tie|descale a kettle|sew curtains|bleed a radiator|fix a $device|fold a fitted sheet]
? what is the date of [the election|the moon landing|the next eclipse|my wedding|the final|the battle of $city]
? what day [was I born|is the concert|does school start|is the final|did we move in]
? what time did [$person call|the war end|the film start|$person come home|I fall asleep]
! show me [how to tie a tie|how to dance|how to fix a $device|your face|the door|how to make $dish]
! list [my contacts|all my files|my debts|the ingredients of $dish|the reasons to stay|three $word facts]
! set [my watch to winter time|the cat on the sofa|$first up with $person|a riddle for the kids]
! add [subtitles to the film|a filter to my selfie|wings to my car|$number points to my team|a new user|a contact named $full]

say: I'm sorry, I didn't understand that. / I don't understand, could you say that again? / Sorry, what do you mean? / I'm not sure what you mean. /
    I didn't get that, sorry. / What would you like me to do? / Please say that in other words, I didn't understand it.
. $word $word_b / $noun $word / the $noun of $word / $word the $noun $word_b
. [pizza|taxi|facebook|chess|cheese|banana|elephant|potato|monday morning|$noun|$animal|$subject|$city|$full]
. [um|uh|hmm|well|so|er] [|the|and then|you know|I mean|wait|what was it] / $number $noun $word
. [blah|bla bla|la la la|asdf|qwerty|xyz|hmmm|brrr|lorem ipsum|abracadabra]
! $word [the $noun|my $noun|it] / $word my $noun $word_b
"""

WORDED = {
    "do": """I'm sorry, I can't $do. / I can't $do, sorry. / I'm afraid I can't $do. / Sorry, but I can't $do. / I'm not able to $do. / I have no
way to $do. / I don't know how to $do. / I wish I could $do, but I can't. / No, I can't $do, I'm only the helper here. / Unfortunately I can't $do.
/ I can't $do, that is beyond me. / You'll have to ask somebody else, I can't $do. / I never learned to $do. / Sorry, I was not made to $do. / I
can't $do, but I can help with the house.""",
    "know": """I don't know anything about $know, sorry. / I'm sorry, I can't help you with $know. / I don't know much about $know. / I know nothing
about $know. / I'm afraid I know nothing about $know. / Sorry, I'm no expert on $know. / I never learned anything about $know. / I'm not the one to
ask about $know. / I have no idea about $know. / I was not taught about $know, sorry. / I can't tell you anything about $know. / When it comes to
$know I can't help. / I don't know that, I'm only the helper of this house. / I don't know that, sorry. / I can't answer that. / I'm afraid I don't
know. / That's a good question, but I don't know the answer. / I have no idea, I only look after the house. / You'd better look that up, I don't
know.""",
    "any": """That is not something I can do. / That's beyond me, sorry. / I can't help with that. / Sorry, I can't help you there. / I'm afraid
that is beyond me. / I only look after the house. / I can only help with things in the house. / I can't help with that, sorry. / I can't help with
that, but I can switch lights or set a timer. / That's not my job, sorry. / I have no tool for that. / I'm sorry, that goes beyond what I can do. /
Sorry, that is out of my reach. / I'm afraid I can't help with that.""",
}
ANSWERED = {kind: text.replace("\n", " ").split(" / ") for kind, text in WORDED.items()}
FORMS = {"!": "command", "?": "question", ".": "statement"}
OPENINGS = ["quick question, ", "tell me, ", "just wondering, ", "just curious, ", "ok so, ", "by the way, ", "one more thing, ", "hmm, ", "listen, "]
WRAPPED = [("I need you to ", "statement"), ("I want you to ", "statement"), ("I'd like you to ", "statement"), ("are you able to ", "question"),
           ("do you know how to ", "question"), ("do you think you could ", "question"), ("is it possible for you to ", "question")]  # fmt: skip
TURNED = {"my": "your", "me": "you", "our": "your", "us": "you", "mine": "yours", "I": "you", "I'm": "you're"}


def read_topics():
    """[(form, pattern, slots of the pattern, kind of answer, answers)] and the running sums of their weights."""
    rows = []
    for paragraph in TOPICS.strip().split("\n\n"):
        head, *lines = re.sub(r"\n +", " ", paragraph).split("\n")
        kind, _, answers = head.partition(": ")
        answers = [(a, set(re.findall(r"\$([a-z_]+)", a))) for a in answers.split(" / ")]
        for mark, pattern in ((line[0], p) for line in lines for p in line[2:].split(" / ")):
            rows.append((FORMS[mark], pattern, set(re.findall(r"\$([a-z_]+)", pattern)), kind, answers))
    return rows, list(accumulate(1 + 0.5 * len(row[2]) + row[1].count("[") / 4 for row in rows))


ROWS, SUMS = read_topics()


def turned(text):
    """The user's words in the helper's mouth: "my mum" is "your mum"."""
    return " ".join(TURNED.get(w, w) for w in text.split(" "))


def refuse(rng):
    form, pattern, slots, kind, answers = rng.choices(ROWS, cum_weights=SUMS)[0]
    values = {slot: SLOTS[slot](rng) for slot in sorted(slots)}
    answer, named = one_of(rng, [a for a in answers if a[1] <= slots])
    if chance(rng, 0.15):
        values = {slot: value.lower() for slot, value in values.items()}
    text = expand(rng, pattern, **{s: copied(v) if s in named else v for s, v in values.items()})
    if any(copied(values[s]) not in text for s in named):
        answer = one_of(rng, [a for a, n in answers if not n])
    if form == "question" and chance(rng, 0.03):
        text = one_of(rng, OPENINGS) + text
    if form == "command" and chance(rng, 0.04):
        opening, form = one_of(rng, WRAPPED)
        text = opening + text
    answer = expand(rng, answer, **{s: turned(v) for s, v in values.items()})
    if kind != "say":
        answer = expand(rng, one_of(rng, ANSWERED["any" if chance(rng, 0.25) else kind]), do=answer, know=answer)
    return Request(text, form, reply=answer[0].upper() + answer[1:])
