"""Lists: shopping, things to do, packing and any other; putting on, taking off, reading out."""

import re

from grammar import Request, chance, copied, expand, in_words, one_of
from grammar import invented as any_invented

FOOD = """milk|eggs|bread|butter|cheese|yogurt|yoghurt|cream|sour cream|cream cheese|cottage cheese|feta|mozzarella|parmesan|cheddar|goat cheese
|oat milk|almond milk|soy milk|flour|sugar|brown sugar|icing sugar|salt|pepper|black pepper|rice|basmati rice|brown rice|pasta|spaghetti
|noodles|couscous|quinoa|lentils|red lentils|chickpeas|kidney beans|black beans|baked beans|green beans|peas|frozen peas|corn|sweetcorn
|tomatoes|cherry tomatoes|tinned tomatoes|canned tomatoes|tomato paste|ketchup|mustard|mayonnaise|mayo|soy sauce|hot sauce|olive oil
|sunflower oil|vegetable oil|sesame oil|vinegar|balsamic vinegar|honey|jam|strawberry jam|marmalade|peanut butter|maple syrup|chocolate
|dark chocolate|cocoa|cookies|biscuits|crackers|chips|crisps|popcorn|nuts|peanuts|almonds|walnuts|cashews|raisins|dates|apples|bananas|oranges
|lemons|limes|grapes|pears|peaches|plums|cherries|strawberries|blueberries|raspberries|kiwis|mangoes|pineapple|watermelon|melon|avocados
|potatoes|sweet potatoes|onions|red onions|spring onions|garlic|ginger|carrots|celery|cucumber|lettuce|spinach|kale|cabbage|broccoli
|cauliflower|zucchini|courgettes|eggplant|aubergine|peppers|chillies|mushrooms|leeks|beetroot|radishes|asparagus|pumpkin|squash|parsley|basil
|coriander|cilantro|thyme|rosemary|mint|dill|chives|oregano|cinnamon|cumin|paprika|turmeric|nutmeg|vanilla extract|vanilla|curry powder
|chili flakes|bay leaves|stock cubes|chicken stock|baking powder|baking soda|yeast|gelatine|chicken|chicken breast|chicken thighs|turkey
|ground beef|minced beef|beef|steak|pork chops|bacon|ham|sausages|salami|lamb|fish|salmon|smoked salmon|tuna|cod|shrimp|prawns|fish fingers
|tofu|tempeh|hummus|olives|pickles|capers|tortillas|wraps|bagels|croissants|rolls|buns|pita bread|rye bread|toast|cereal|cornflakes|oats
|oatmeal|granola|muesli|pancake mix|coffee|coffee beans|ground coffee|decaf|tea|green tea|camomile tea|tea bags|orange juice|apple juice
|tomato juice|lemonade|cola|tonic water|sparkling water|mineral water|water|beer|wine|red wine|white wine|prosecco|gin|rum|vodka|ice cream
|ice cubes|frozen pizza|pizza|fries|frozen berries|cake|muffins|donuts|candy|gummy bears|chewing gum|mints|protein powder|protein bars
|baby food|baby formula|cat food|dog food|dog treats|bird seed|salsa|guacamole|pesto|coconut milk|coconut oil|tahini|miso paste|rice vinegar
|nori sheets|wasabi|kimchi|sauerkraut|pomegranate|figs|apricots|nectarines|rhubarb|fennel|artichokes|brussels sprouts|bok choy|turnips
|parsnips|swede|okra|plantains|passion fruit|grapefruit|tangerines|clementines|halloumi|brie|gouda|ricotta|mascarpone|buttermilk|ghee
|margarine|lard|polenta|semolina|bulgur|barley|breadcrumbs|cornstarch|sprinkles
|marshmallows|pretzels|rice cakes""".replace("\n", "").split("|")
HOUSEHOLD = """toilet paper|kitchen roll|paper towels|tissues|napkins|bin bags|trash bags|garbage bags|dish soap|washing-up liquid
|dishwasher tablets|dishwasher salt|rinse aid|laundry detergent|washing powder|fabric softener|bleach|stain remover|sponges|cleaning cloths
|glass cleaner|bathroom cleaner|all-purpose cleaner|floor cleaner|descaler|rubber gloves|aluminium foil|aluminum foil|tin foil|cling film
|plastic wrap|baking paper|parchment paper|freezer bags|sandwich bags|coffee filters|candles|tea lights|matches|lighters|light bulbs|batteries
|AA batteries|AAA batteries|extension cord|vacuum bags|air freshener|mop|broom|bucket|dustpan|clothes pegs|hangers|ironing board
|laundry basket|shampoo|conditioner|soap|hand soap|shower gel|toothpaste|toothbrushes|dental floss|mouthwash|deodorant|razors|razor blades
|shaving cream|body lotion|hand cream|lip balm|sunscreen|sun cream|nail polish|cotton pads|cotton buds|hairbrush|hair ties|hair gel|diapers
|nappies|baby wipes|wet wipes|tampons|sanitary pads|cat litter|flea collar|potting soil|plant food|fertilizer|flower pots|light switch
|picture frame|doormat|shower curtain|towels|pillow|bed sheets|duvet cover|wrapping paper|birthday candles|balloons|gift bags|greeting cards
|charcoal|firewood|paper plates|plastic cups|straws|toothpicks|skewers""".replace("\n", "").split("|")
TOOLS = """screws|nails|hammer|screwdriver|wall plugs|drill bits|sandpaper|paint|white paint|paint brushes|paint roller|masking tape|duct tape
|super glue|wood glue|silicone sealant|wood filler|pliers|wrench|allen keys|hacksaw|saw blades|tape measure|spirit level|ladder|cable ties
|fuses|wire|hooks|hinges|brackets|door handle|padlock|rope|hose|garden hose|rake|shovel|secateurs|work gloves|safety goggles|dust mask|plywood
|timber|varnish|wd-40|washers|bolts|nuts and bolts|staple gun|utility knife|bike pump|inner tube|engine oil|antifreeze|windscreen washer
|grass seed|tulip bulbs|tomato plants|compost|watering can|mouse traps|smoke detector""".replace("\n", "").split("|")
MEDICINE = """aspirin|ibuprofen|paracetamol|painkillers|cough syrup|cough drops|throat lozenges|nose spray|nasal spray|eye drops|ear drops
|band-aids|plasters|bandages|antiseptic|thermometer|vitamins|vitamin c|vitamin d|zinc tablets|magnesium|allergy tablets|antihistamines
|antacids|insulin|inhaler|hand sanitizer|face masks|contact lens solution|iodine|burn cream|insect repellent|mosquito spray|calamine lotion
|rehydration salts|folic acid|fish oil|probiotics|melatonin|cold medicine|prescription""".replace("\n", "").split("|")
SCHOOL = """pens|pencils|colored pencils|coloured pencils|crayons|markers|felt tips|highlighters|eraser|pencil sharpener|ruler|compass|protractor
|calculator|notebooks|exercise books|graph paper|printer paper|printer ink|folders|binders|sticky notes|post-its|glue sticks|scissors|stapler
|staples|paper clips|envelopes|stamps|index cards|lunch box|water bottle|backpack|gym bag|pencil case|poster board|watercolors|paint set
|whiteboard markers|usb stick|ink cartridges|tape|sellotape|planner|diary|sketchbook""".replace("\n", "").split("|")
PACKING = """passport|passports|tickets|boarding passes|wallet|cash|credit card|driver's license|phone charger|charger|power bank|adapter
|travel adapter|laptop|tablet|headphones|earplugs|camera|book|books|sunglasses|sun hat|swimsuit|swimming trunks|bikini|goggles|beach towel
|flip-flops|sandals|hiking boots|sneakers|trainers|socks|wool socks|underwear|t-shirts|shirts|jeans|shorts|trousers|sweater|jumper|jacket
|rain jacket|raincoat|umbrella|winter coat|scarf|gloves|hat|beanie|pyjamas|pajamas|dress|belt|tie|toothbrush|toiletry bag|makeup bag|hairdryer
|first aid kit|sleeping bag|sleeping mat|tent|torch|flashlight|headlamp|camping stove|gas canister|pocket knife|thermos|tin opener|can opener
|corkscrew|cooler|folding chairs|picnic blanket|frisbee|football|board games|playing cards|teddy bear|stroller|car seat|baby monitor
|travel pillow|eye mask|map|compass|binoculars|snorkel|ski goggles|ski pants|thermal underwear|snacks|medication|glasses|contact lenses|binder
|travel documents|guidebook""".replace("\n", "").split("|")
GIFTS = """scarf for Mom|watch for Dad|lego set|puzzle|perfume|cookbook|board game|socks for grandpa|earrings|necklace|bottle of whisky
|book for Tom|teddy bear|bicycle|camera|new phone|smart watch|trip to Japan|skateboard|dollhouse|telescope|chess set|concert tickets
|massage voucher|slippers|robe|wool blanket|tea set|guitar|drum kit|robot vacuum|electric toothbrush|roller skates|train set|kite|yoga mat
|fountain pen|photo album|wine glasses|pasta maker|espresso machine|bird feeder""".replace("\n", "").split("|")
PEOPLE = """Tom|Anna|Lisa|Ben|Mia|Sam|Julia|Max|Emma|Leo|Nina|Paul|Sofia|Ahmed|Yuki|Priya|Carlos|Olga|Grandma|Dad|Mom|Uncle Joe|Aunt May|Mrs Bell
|Mr Cole|Dr. Patel|Sarah|Peter|Kate|Oliver|Grace|Jonas|Fatima|Wei|Elena|Marco|Ingrid|Zoe|Theo|Hannah""".replace("\n", "").split("|")
WATCH = """Casablanca|Alien|Jaws|Amelie|Vertigo|Parasite|Spirited Away|Moby Dick|War and Peace|Dune|Emma|Middlemarch|Dracula
|Ulysses|Beloved|Persuasion|Top Gun
|Blade Runner|Paddington|Chocolat|Rocky|Fargo|Heat|Psycho|Grease|Gravity|Up|Frozen|Moana""".replace("\n", "").split("|")
UNITS = """loaf of bread|bottle of wine|bottle of milk|carton of milk|carton of eggs|pint of milk|jar of honey|jar of pickles|jar of jam
|can of tuna|can of beans|tin of tomatoes|bag of rice|bag of flour|bag of potatoes|bag of apples|pack of butter|packet of crisps
|pack of batteries|box of cereal|box of tissues|box of tea|bunch of bananas|bunch of parsley|bunch of flowers|head of lettuce|head of garlic
|bar of chocolate|bar of soap|tube of toothpaste|roll of tape|roll of foil|crate of beer|six-pack of beer|kilo of flour|pound of butter
|slice of ham|cup of cream|tub of ice cream|block of cheese|piece of ginger|dozen eggs|dozen bagels|pair of socks|pair of gloves|pair of jeans
|pair of shoes|can of paint|tin of paint|box of screws|box of nails|packet of seeds|pack of pens|ream of paper|bottle of shampoo
|bottle of ketchup|sack of potatoes|birthday card|birthday cake|frying pan|new kettle|new toothbrush|new broom|spare key|big pumpkin
|small ladder|red onion|ripe mango|whole chicken|fresh baguette|can of cat food|bag of dog food|stick of butter|tray of strawberries
|wheel of brie|litre of milk|gallon of milk|liter of oil|half pound of ham""".replace("\n", "").split("|")
COUNTED = """lemons|eggs|apples|onions|bananas|cans of tuna|tins of tomatoes|bottles of wine|bottles of water|loaves of bread|cartons of milk
|pints of milk|packs of butter|bags of rice|avocados|limes|oranges|carrots|cucumbers|bagels|croissants|jars of honey|boxes of tissues
|rolls of tape|light bulbs|batteries|candles|notebooks|pens|pencils|t-shirts|shirts|pairs of socks|pairs of jeans|towels|books|sweaters
|pairs of shoes|masks|folding chairs|balloons|envelopes|stamps|screws|hooks|flower pots|sponges|bars of soap|steaks|chicken breasts
|salmon fillets|pizzas|beers|yogurts|chocolate bars|packs of gum|cups|plates|kilos of potatoes|kilos of flour|pounds of beef|liters of juice
|heads of garlic|bunches of mint|peppers|tomatoes|potatoes|mangoes|bags of chips|packets of yeast|cases of beer|tickets|passports|swimsuits
|sandwiches|bin bags""".replace("\n", "").split("|")
QUALITIES = """organic|fresh|frozen|cheap|small|large|big|red|green|white|vegan|gluten-free|lactose-free|low-fat|whole grain|sugar-free|dried
|canned|tinned|smoked|spicy|new|good|extra|unsalted|salted|local|ripe|mini|italian|french|greek|swiss|thick|soft
|blue|black|spare|warm""".replace("\n", "").split("|")
NAMES = """packing|camping|christmas|birthday|gift|wish|guest|party|reading|movie|book|bucket|hardware store|pharmacy|drugstore|garden|gardening
|cleaning|chores|homework|school|work|office|travel|holiday|vacation|beach|wedding|baby|baby shower|moving|repair|renovation|supermarket
|farmers market|pet|dog|picnic|barbecue|bbq|dinner party|hiking|ski trip|road trip|weekend|museum|restaurant|music|song|recipe|ideas|project
|craft|medicine|first aid|emergency|tool|workshop|boat|winter|summer|easter|halloween|toy|band|club|donation|thank you|inventory|freezer
|pantry|Costco|Ikea|Aldi|Lidl|Target|bakery|butcher|cheese|wine|party supplies|errands|spring cleaning|fishing|sailing|studio|costume|kids
|sewing|lego""".replace("\n", "").split("|")
KINDS = {"packing": PACKING, "camping": PACKING, "travel": PACKING, "holiday": PACKING, "vacation": PACKING, "beach": PACKING, "hiking": PACKING,
    "ski trip": PACKING,
         "road trip": PACKING, "weekend": PACKING, "sailing": PACKING, "fishing": PACKING, "gift": GIFTS, "christmas": GIFTS, "birthday": GIFTS,
             "wish": GIFTS, "wedding": GIFTS,
         "toy": GIFTS, "guest": PEOPLE, "party": FOOD, "barbecue": FOOD, "bbq": FOOD, "picnic": FOOD, "dinner party": FOOD, "reading": WATCH,
             "movie": WATCH, "book": WATCH,
         "hardware store": TOOLS, "tool": TOOLS, "workshop": TOOLS, "repair": TOOLS, "renovation": TOOLS, "garden": TOOLS, "gardening": TOOLS,
             "boat": TOOLS,
         "pharmacy": MEDICINE, "drugstore": MEDICINE, "medicine": MEDICINE, "first aid": MEDICINE, "emergency": MEDICINE, "school": SCHOOL,
             "homework": SCHOOL,
         "office": SCHOOL, "craft": SCHOOL, "cleaning": HOUSEHOLD, "spring cleaning": HOUSEHOLD, "Ikea": HOUSEHOLD, "moving": HOUSEHOLD,
             "supermarket": FOOD,
         "Costco": FOOD, "Aldi": FOOD, "Lidl": FOOD, "farmers market": FOOD, "freezer": FOOD, "pantry": FOOD, "bakery": FOOD,
             "recipe": FOOD}  # fmt: skip
OWNERS = "Tom's|Anna's|Lisa's|kids'|Dad's|Mom's|Grandma's|Ben's|family|Mia's|Leo's|Emma's".split("|")

# things to do: each begins with the verb
TODO_FORMS = """call $who|call $who|call $who back|call the $office|ring $who|ring the $office|phone $who|phone the $office|text $who
|message $who|email $who|email the $office|write to $who|write to the $office|write $who a $letter|send $who the $paper|send $who a $letter
|send the $paper to $who|reply to $who|answer $who's email|thank $who|thank $who for the $gift|visit $who|meet $who|meet $who for $meal
|meet $who at the $spot|pick up $who|pick up $who from the $spot|pick $who up from the $spot|pick up the $parcel
|pick up the $parcel from the $spot|drop off the $parcel|drop the $parcel off at the $spot|drop $who off at the $spot|drive $who to the $spot
|take $who to the $spot|take the $pet to the vet|walk the $pet|feed the $pet|brush the $pet|wash the $pet|bathe the $pet|take out the $trash
|take the $trash out|empty the $machine|clean the $place|clean the $place|tidy the $place|tidy up the $place|vacuum the $place
|sweep the $place|mop the $place|dust the $place|paint the $place|declutter the $place|wash the $thing|fix the $thing|repair the $thing
|replace the $thing|check the $thing|oil the $thing|clean the $thing|sell the old $thing|measure the $thing|water the $plants
|prune the $plants|plant the $plants|trim the $plants|mow the lawn|rake the leaves|weed the garden|shovel the snow|pay the $bill|pay the $bill
|cancel the $contract|renew the $contract|renew my passport|renew my license|return the $parcel|return the books|return $who's $thing
|give $who the $gift back|lend $who the $thing|book a $trip|book the $trip|book a table for $few|book an appointment with $who
|make an appointment with the $office|make a dentist appointment|schedule the $meeting|cancel the $meeting|prepare the $meeting
|prepare for the $meeting|finish the $paper|write the $paper|print the $paper|sign the $paper|read the $paper|check the $paper|scan the $paper
|submit the $paper|proofread the $paper|review $who's $paper|file the $paper|do the $chore|do the $chore|do my $homework|study for the $exam
|practice the $music|practice $music|iron the $clothes|fold the $clothes|wash the $clothes|hang up the $clothes|mend the $clothes|bake $baked
|bake $baked for $who|cook $meal|cook $meal for $who|make $baked|buy $buy|buy $buy for $who|buy $who a $present|get a present for $who
|get $buy|order $buy|wrap $who's present|wrap the presents|charge the $gadget|update the $gadget|back up the $gadget|set up the $gadget
|reset the $gadget|change the $filter|change the sheets|change the oil|change the password|defrost the freezer|descale the kettle
|bring $baked to $who|bring in the $parcel|bring the $thing to the repair shop|get a haircut|get the car washed|get gas|fill up the car
|wash the car|inflate the tires|change the tires|lock the $gate|close the $gate|go to the $spot|go to the $spot|go for a run|go jogging
|go swimming|take my pills|take the medicine|take a walk|drink more water|do yoga|stretch|meditate|invite $who|invite $who for $meal
|invite the neighbors|ask $who about the $trip|ask $who for the $thing|tell $who about the $meeting|talk to $who|talk to the $office
|apologize to $who|congratulate $who|wish $who a happy birthday|help $who with the $chore|help $who move|babysit for $who|plan the $trip
|plan the party|organize the $place|organise the $place|sort the $paper|look for the $thing|find a $worker|call a $worker|hire a $worker
|learn $music|register for the $course|sign up for the $course|vote|do the taxes|file the taxes|check the mail|check the smoke detector
|turn in the $paper|transfer the rent|transfer money to $who|pack the $bag|pack for the $trip|unpack the $bag|buy a $bag|hang the $picture
|put up the $picture|assemble the $thing|test the $thing""".replace("\n", "").split("|")
TODO_VALUES = {
    "who": PEOPLE + (
        "mom|dad|grandma|grandpa|my sister|my brother|the neighbors|the landlord|the boss|aunt rosa|uncle jim|the kids|"
        "the plumber"
    ).split("|") + PEOPLE,
    "office": (
        "dentist|doctor|bank|school|insurance company|plumber|electrician|landlord|vet|garage|tax office|mechanic|hairdresser|"
        "lawyer|pharmacy|eye doctor|airline|town hall|library|gym|council|pediatrician|accountant"
    ).split("|"),
    "letter": "letter|card|postcard|birthday card|thank-you note|message|reminder|photo".split("|"),
    "paper": (
        "report|contract|invoice|photos|tax return|essay|presentation|application|form|lease|budget|letter|minutes|homework|"
        "speech|manual|résumé|thesis|receipts|newsletter|survey"
    ).split("|"),
    "gift": "flowers|book|cake|drill|present|ladder|umbrella|key|jacket|loan".split("|"),
    "meal": "lunch|dinner|coffee|breakfast|a drink|brunch|tea|supper".split("|"),
    "spot": (
        "station|airport|school|kindergarten|office|library|post office|bank|gym|pharmacy|market|dentist|hospital|doctor|daycare|"
        "bus stop|football practice|swimming pool|bakery|recycling center|dump|cinema|harbor|museum"
    ).split("|"),
    "parcel": "parcel|package|dry cleaning|prescription|cake|laundry|keys|tickets|bike|suit|mail|groceries|library books|shoes|rental car".split("|"),
    "pet": "dog|cat|rabbit|puppy|horse|parrot|hamster|kitten|guinea pig|fish".split("|"),
    "trash": "trash|garbage|recycling|bins|rubbish|compost|glass|old paper".split("|"),
    "machine": "dishwasher|washing machine|dryer|bins|litter box|vacuum cleaner|mailbox|fridge|compost bin".split("|"),
    "place": (
        "kitchen|bathroom|garage|attic|basement|office|living room|bedroom|windows|oven|fridge|balcony|garden shed|hallway|fence|"
        "stairs|car|closet|desk|gutters|pool|aquarium|barbecue|front porch|kids' room|chicken coop"
    ).split("|"),
    "thing": (
        "car|bike|sink|tap|faucet|toilet|lamp|washing machine|printer|door|window|chair|table|roof|boiler|radiator|lawnmower|"
        "skis|guitar|bookshelf|laptop|camera|drill|sofa|stroller|tent|fence|doorbell|shower head|gate|coffee machine"
    ).split("|"),
    "plants": "plants|flowers|roses|tomatoes|hedge|orchids|herbs|apple tree|tulips|lemon tree|basil|garden|bonsai|ferns".split("|"),
    "bill": (
        "rent|electricity bill|gas bill|phone bill|water bill|internet bill|credit card bill|parking ticket|taxes|insurance|"
        "babysitter|school fees|gardener|mortgage"
    ).split("|"),
    "contract": (
        "gym membership|subscription|insurance|newspaper subscription|phone contract|library card|parking permit|magazine|"
        "streaming subscription|domain"
    ).split("|"),
    "few": "two|four|six|eight|friday|saturday|Sunday|tonight".split("|"),
    "trip": (
        "hotel|flight|train|holiday|trip to Rome|trip to Oslo|babysitter|weekend trip|cabin|ferry|taxi|tour|campsite|rental car|"
        "vacation"
    ).split("|"),
    "meeting": (
        "meeting|interview|workshop|appointment|conference call|parents' evening|dinner party|presentation|team lunch|inspection|"
        "lesson|exam"
    ).split("|"),
    "chore": "dishes|laundry|ironing|shopping|vacuuming|washing-up|cleaning|gardening|bookkeeping|recycling|accounts|homework|move|garden".split("|"),
    "homework": "homework|math homework|french homework|exercises|stretches|taxes|nails|spanish lesson|piano practice".split("|"),
    "exam": "exam|math test|driving test|history exam|chemistry test|spelling test|finals|quiz".split("|"),
    "music": "piano|guitar|violin|drums|spanish|trumpet|juggling|french|speech|flute|chess openings|japanese".split("|"),
    "clothes": "shirts|laundry|white shirt|curtains|socks|towels|sheets|uniform|trousers|dress|sweaters|jeans|tablecloth|football kit".split("|"),
    "baked": "a cake|cookies|bread|an apple pie|muffins|a birthday cake|pizza|lasagna|soup|pancakes|brownies|banana bread|scones".split("|"),
    "buy": (
        "milk|bread|flowers|stamps|a birthday card|new shoes|a gift|light bulbs|cat food|train tickets|concert tickets|batteries|"
        "printer ink|a new phone|bread and butter|diapers|a toaster|paint|seeds|firewood|contact lenses|a wedding present"
    ).split("|"),
    "present": "present|birthday card|book|card|bike|cake|ticket|scarf".split("|"),
    "gadget": "phone|laptop|camera|tablet|headphones|drill|car|e-bike|router|watch|computer|scooter|printer|toothbrush".split("|"),
    "filter": "air filter|light bulb|water filter|batteries|bed sheets|lightbulb in the hall|vacuum bag|cat litter|locks".split("|"),
    "gate": "gate|back door|garage|shed|windows|front door|chicken coop".split("|"),
    "worker": "plumber|babysitter|gardener|electrician|tutor|handyman|cleaner|dog sitter|painter|photographer|piano tuner|locksmith".split("|"),
    "course": "yoga class|language course|marathon|conference|webinar|swimming lessons|cooking class|pottery course|driving lessons".split("|"),
    "bag": "suitcase|backpack|gym bag|lunch|school bag|car|swim bag|picnic basket".split("|"),
    "picture": "picture|shelf|mirror|curtains|bird house|poster|christmas lights|swing|tent|decorations".split("|"),
}  # fmt: skip
TIMES = """tomorrow|tonight|today|on Monday|on Tuesday|on friday|on Saturday|this weekend|next week|this afternoon|before lunch|after work
|at noon|by Friday|before the trip|in the morning|by tuesday|tomorrow morning|on the weekend|before dinner|next month|at 5|at 3 pm|on thursday
|after school|this evening""".replace("\n", "").split("|")

# $list: a list with its article; $items: things, one to five
ADD_COMMANDS = """add $items to $list
add $items to $list
put $items on $list
put $items on $list
add $items on $list
put $items [down|] on $list
stick $items on $list
write $items [down|] on $list
pop $items on $list
throw $items on $list
place $items on $list
get $items on $list
[note|jot] [down|] $items on $list
enter $items [in|into|on] $list
include $items [in|on] $list
append $items to $list
insert $items into $list
save $items to $list
make sure $items [gets|get] on $list
make a note on $list: $items
extend $list with $items
expand $list by $items
update $list with $items
add to $list: $items
add to $list $items
add the following to $list: $items
put on $list: $items
put the following on $list: $items
add to $list the following: $items
add this to $list: $items
go ahead and add $items to $list
see that $items is on $list
let's [add|put] $items [on|on] $list
let's add $items to $list
remember $items for $list
list $items on $list
list $items under $list
scribble $items on $list
don't forget to put $items on $list
also put $items on $list
also add $items to $list
tack $items onto $list
[start|make|create] $newlist with $items
add $items to $list [for me|now|right away|before i forget|while you're at it|as well|too]
put $items on $list [for me|now|right away|before i forget|as well|too]""".split("\n")
ADD_STATEMENTS = """$items on $list
$items [for|onto|to] $list
$list: $items
[on|onto] $list: $items
[for|to] $list: $items
$list, $items
$list, add $items
$list needs $items
$list [should|must] [have|include|contain] $items
new on $list: $items
$items should be on $list
$items should go on $list
$items [must|needs to|has to|have to] go on $list
$items [belongs|belong] on $list
[also|] $items on $list [too|as well|now|]
i want $items on $list
i'd like $items on $list
i need $items on $list
i need you to [put|add] $items [on|to] $list
i want you to put $items on $list
i'd like you to add $items to $list
i want to [put|have] $items on $list
i want to add $items to $list
i'd like to [put|have] $items on $list
i'd like to add $items to $list
i would like to add $items to $list
we should put $items on $list
we should add $items to $list
[ok|okay|right|alright|oh|so|hm], [put|write] $items on $list
[ok|okay|right|alright|oh|so|hm], add $items to $list
i forgot to put $items on $list
before i forget, [put|] $items on $list
$list is missing $items
$list isn't complete without $items
you can put $items on $list
you can add $items to $list
one more [thing|] for $list: $items
another [thing|item|one] for $list: $items""".split("\n")
ADD_QUESTIONS = """can i [put|have|get] $items on $list
can i add $items to $list
can we [put|have|get] $items on $list
can we add $items to $list
could we [put|have] $items on $list
would you mind adding $items to $list
would you mind putting $items on $list
do you mind adding $items to $list
would you add $items to $list
would you put $items on $list
how about $items on $list
how about adding $items to $list
what about putting $items on $list
why don't you put $items on $list
may i add $items to $list
shall we put $items on $list
is it possible to add $items to $list
will you put $items on $list
could $items go on $list
can $items go on $list
should we put $items on $list? yes, do that""".split("\n")
# without the name of a list: shopping
SHOP_COMMANDS = """add $items
add $items
add $items [for me|too|as well|now]
put $items on the list
put $items on the list
add $items to the list
add $items to the list
add to the list: $items
write $items on the list
write down $items on the list
stick $items on the list
put $items down [to buy|for shopping|for the supermarket|for the next shop|for the store]
put $items with the groceries
add $items to the [shopping|groceries]
add $items to [what|the things] we [need to buy|have to buy|need from the store]
let's add $items
let's put $items on the list
get $items on the list
pop $items on the list
note that we need $items
note that we're out of $first
remember that we need $items
remember we need $items
make a note that we need $items
[start|make|begin] a shopping list with $items""".split("\n")
SHOP_STATEMENTS = """we need $items
we need $items
we need [to buy|to get|to pick up] $items
we need to buy $items
we need $items from the [store|shop|supermarket|market]
we [also|still|really|urgently] need $items
we need [more|] $plain
i need $items
i need $items from the [store|shop|supermarket]
we[ have|'ve got] to buy $items
we [should|must] buy $items
we [should|must] get $items
we're out of $plain
we're [all|completely|totally|nearly|almost] out of $plain
we are out of $plain
we've run out of $plain
we ran out of $plain
we're running [low on|out of] $plain
we're low on $plain
we don't have [any|any more] $plain [left|anymore|]
we have no $plain [left|anymore|]
we haven't got any $plain [left|]
there's no $first left
there's no more $first
there is no $first in the house
no more $plain, put it on the list
i [just|] used up the $plain
i [just|] finished the $plain
we used up the $plain
we [finished|ate] the last of the $plain
i [used|finished] the last of the $plain
the $plain is [all gone|finished|used up|nearly gone|running out]
the $plain [ran out|is running low]
$items for the [shopping|grocery] list
[i'm baking|i'm making a cake|we're having guests|for dinner], we need $items
for [the cake|dinner|breakfast|the party|the soup|the salad|tomorrow] we need $items
for [the cake|dinner|breakfast|the party|the soup|the salad] we need to buy $items
things [to buy|we need]: $items
[to buy|shopping]: $items
groceries: $items
[somebody|someone|the dog|the cat|my son] [ate|finished] all the $plain
[oh|oh no|darn|hm], we're out of $plain
[oh|ah|hm|right], we need $items
from the [store|supermarket|shop] we need $items
next time we go shopping we need $items
$items [needs|need] to be bought
when i go shopping i need $items
when we go to the store, we need $items
i want to buy $items
we want to buy $items
it looks like we need $items
looks like we're out of $plain
i think we need $items
i think we're out of $plain
i noticed we're out of $plain
i just saw that we have no $plain
we could use $items
the fridge is empty, we need $items
$first, we're out of it
$items is what we need
what we need is $items
what we need to buy: $items
$items, we need that""".split("\n")
SHOP_QUESTIONS = """can we buy $items
can we get $items [next time|at the store|when we go shopping]
can you note that we need $items
could you remember that we need $items
can you put down that we're out of $plain
did you know we're out of $plain
would you write down that we need $items
would you mind adding $items
how about adding $items
can i add $items""".split("\n")
TODO_COMMANDS = """remind me to $todo
remind me to $todo
remind me to $todo
remind us to $todo
remind me [that i have to|that i need to|that i must|i have to|i need to|i must] $todo
help me remember to $todo
don't let me forget to $todo
make sure i $todo
make sure i don't forget to $todo
make sure i remember to $todo
make a note to $todo
make a note that i [have to|need to|must|should] $todo
take a note that i [have to|need to|must] $todo
note that i [have to|need to|must] $todo
note [down|] to $todo
note: $todo
write down that i [have to|need to|must|should] $todo
remember that i [have to|need to|must|should] $todo
remember to $todo
[add|make|create] a to-do: $todo
[add|make|create] a todo to $todo
[add|create|set] a reminder to $todo
add $todo to $todolist
add $todo to $todolist
put $todo on $todolist
put $todo on $todolist
put $todo down on $todolist
write $todo on $todolist
stick $todo on $todolist
add to $todolist: $todo
put on $todolist: $todo
put "$todo" on $todolist
add "$todo" to $todolist
note $todo on $todolist
get $todo on $todolist
include $todo on $todolist
enter $todo in $todolist
jot $todo down on $todolist
let me remember to $todo
keep in mind that i [have to|need to|must] $todo
bear in mind that i [have to|must] $todo
save a to-do for me: $todo
save a reminder: $todo
set a reminder: $todo
set me a reminder to $todo
put it on $todolist to $todo
put down that i [have to|need to] $todo""".split("\n")
TODO_STATEMENTS = """i have to $todo
i have to $todo
i [still|also] have to $todo
i've got to $todo
i need to $todo_not_buy
i [still|also|really] need to $todo_not_buy
i must $todo_not_buy
i must not forget to $todo
i mustn't forget to $todo
i should $todo_not_buy
i ought to $todo_not_buy
i gotta $todo
i can't forget to $todo
i shouldn't forget to $todo
i don't want to forget to $todo
i keep forgetting to $todo
i always forget to $todo, [remind me|put it on the list of things to do|put that on my to-do list]
i'd like to be reminded to $todo
i want to be reminded to $todo
i'd like a reminder to $todo
i want you to remind me to $todo
i'd like you to remind me to $todo
i need a reminder to $todo
i need you to remind me to $todo
[ok|oh|ah|right|hm|so|well], i have to $todo
[ok|oh|ah|right|hm|so|well], remind me to $todo
[before i forget|by the way|one more thing|oh yes], i have to $todo
[before i forget|by the way|one more thing|oh yes], remind me to $todo
to do: $todo
todo: $todo
[my|] to-do list: $todo
new to-do: $todo
reminder: $todo
reminder to $todo
$todo, put that on $todolist
$todo, on $todolist
$todo goes on $todolist
$todo should be on $todolist
$todolist: $todo
on $todolist: $todo
another thing to do: $todo
one more thing to do: $todo
one more for $todolist: $todo
i want $todo on $todolist
i'd like $todo on $todolist
i'd like to add $todo to $todolist
i want to put $todo on $todolist
i need $todo on $todolist
things to do: $todo
we have to $todo_not_buy
we've got to $todo_not_buy
i promised to $todo, [remind me|put it on my to-do list|don't let me forget]
my next task is to $todo, remind me
[mom|dad|my wife|my husband|my boss] wants me to $todo, remind me""".split("\n")
TODO_QUESTIONS = """would you remind me to $todo
would you mind reminding me to $todo
can i get a reminder to $todo
could i have a reminder to $todo
will you remind me to $todo
would you put $todo on $todolist
would you mind adding $todo to $todolist
would you mind putting $todo on $todolist
can i put $todo on $todolist
can we add $todo to $todolist
may i add $todo to $todolist
did i mention that i have to $todo? remind me
do you mind reminding me to $todo
how about adding $todo to $todolist
won't you remind me to $todo
why don't you remind me to $todo
can you make sure i don't forget to $todo
can you make a note that i have to $todo""".split("\n")

REMOVE_COMMANDS = """remove $items from $list
remove $items from $list
take $items off $list
take $items off $list
take $items off of $list
take $items from $list
delete $items from $list
delete $items from $list
cross $items off $list
cross off $items [from|on] $list
cross out $items on $list
scratch $items [off|from] $list
strike $items [off|from] $list
strike out $items on $list
tick off $items on $list
tick $items off $list
check off $items on $list
check $items off $list
erase $items from $list
wipe $items [off|from] $list
drop $items from $list
get $items off $list
get rid of $items on $list
throw $items off $list
kick $items off $list
clear $items [off|from] $list
eliminate $items from $list
[pull|knock|scrub|rub] $items off $list
mark $items as done on $list
leave $items off $list
let's take $items off $list
let's remove $items from $list
remove from $list: $items
remove from $list the following: $items
take off $list: $items
delete on $list: $items
cut $items from $list
[go ahead and|] remove $items from $list
take $items [back|] off $list [again|for me|now|]
remove $items from $list [again|for me|now|too|as well]""".split("\n")
REMOVE_STATEMENTS = """$items [off|from] $list
$items off $list
$items can [come|go] off $list
$items can be [taken off|removed from|crossed off|deleted from] $list
$items [should|must] be removed from $list
$items [shouldn't|doesn't need to|don't need to] be on $list [anymore|]
$items is no longer needed on $list
i don't [want|need] $items on $list [anymore|any more|after all|]
we don't [want|need] $items on $list [anymore|any more|after all|]
no more $items on $list
i want $items [off|removed from|deleted from|gone from] $list
i'd like $items [off|removed from|deleted from|taken off] $list
i'd like to remove $items from $list
i'd like to take $items off $list
i want to [cross|take|strike|tick] $items off $list
i need $items [off|removed from] $list
i [don't know why|wonder why] $items is on $list, take it off
you can [take|cross|tick|strike] $items off $list
you can remove $items from $list
you can delete $items from $list
[ok|okay|right|oh|hm|actually], take $items off $list
[ok|okay|right|oh|hm|actually], remove $items from $list
from $list, remove $items
on $list, [delete|cross off|tick off] $items
i put $items on $list by mistake, [take it off|remove it|delete it]
$items is on $list by mistake, [take it off|remove it|delete it]
$list: [remove|delete|cross off|tick off] $items
$list, minus $items""".split("\n")
REMOVE_QUESTIONS = """can you take $items off $list again
can we [take|cross|strike] $items off $list
can we remove $items from $list
would you mind [taking|crossing|striking] $items off $list
would you mind removing $items from $list
would you mind deleting $items from $list
could $items come off $list
may i [cross|take] $items off $list
shall we take $items off $list
why is $items on $list? [take it off|remove it|delete it]
would you take $items off $list
would you remove $items from $list
do we still need $items on $list? no, remove it
do you mind taking $items off $list
is $items still on $list? [take it off|remove it|delete it]
how about taking $items off $list""".split("\n")
BOUGHT_COMMANDS = """remove $items
delete $items
cross off $items
cross $items off
cross out $items
tick off $items
tick $items off
check off $items
take $items off
take $items off the list
take $items off the list
remove $items from the list
remove $items from the list
delete $items from the list
cross $items off the list
scratch $items from the list
strike $items off the list
tick $items off the list
take $items off the list [again|, we have some|, we have enough|, i bought it|, we don't need it|, i got it]
remove $items from the list [again|, we have some|, we have enough|, i bought it]
take $items off the groceries""".split("\n")
BOUGHT_STATEMENTS = """we have $items now
we have $items now
we've got $items now
we have $items [already|again]
we already have $items
we already have [enough|plenty of] $plain
we have [enough|plenty of] $plain
we've [already|] got [enough|plenty of] $plain
we still have [enough|plenty of] $plain
there's [enough|plenty of] $plain [left|at home|]
i bought $items
i bought $items
i [already|just] bought $items
i've bought $items
i've [already|just] bought $items
i [already|just|] got $items [at the store|from the shop|at the market|on the way home|at the supermarket]
i've [already|just] got $items from the [store|shop|supermarket]
i picked up $items [at the store|from the shop|at the market|on the way home|at the supermarket|today|already|]
we bought $items
we [already|just] bought $items
we've [already|just|] bought $items
[Tom|Anna|my wife|my husband|dad|mom|Lisa|my son|she|he] [already|just|] bought $items
[Tom|Anna|my wife|my husband|dad|mom|Lisa|my son] has [already|just|] bought $items
[Tom|Anna|my wife|my husband|dad|mom|Lisa|grandma] brought $items
we don't need $items [anymore|any more|after all|any longer|now]
we don't need to buy $items [anymore|any more|after all|now]
i don't need $items [anymore|any more|after all|any longer]
we no longer need $items
no need to buy $items [anymore|any more|after all|]
we needn't buy $items [anymore|]
my wife bought $items today
$items [off|can come off] the list
$items is [bought|in the fridge already|in the cart|in the basket|done], [cross it off|take it off the list|remove it]
[ok|good news|oh|hey|right], i bought $items
[ok|good news|oh|hey|right], we have $items now
[never mind|forget] [the|] $plain, we have [some|enough]
i found some more $plain in the cupboard, we don't need to buy it
turns out we have $items [already|], take it off the list
$items, got it, cross it off""".split("\n")
DONE_COMMANDS = """tick off $todo
tick off $todo
tick off "$todo"
check off $todo
cross off $todo
cross $todo off $todolist
tick $todo off $todolist
remove $todo from $todolist
remove $todo from $todolist
take $todo off $todolist
delete $todo from $todolist
strike $todo off $todolist
scratch $todo from $todolist
tick off $todo on $todolist
check off $todo on $todolist
mark $todo as done
mark $todo as [done|finished|completed] on $todolist
remove "$todo" from $todolist
erase $todo from $todolist
clear $todo from $todolist
drop $todo from $todolist
cancel the reminder to $todo
delete the reminder to $todo
remove the reminder to $todo
get $todo off $todolist""".split("\n")
DONE_STATEMENTS = """$todo off $todolist
$todo can come off $todolist
$todo is done, [tick it off|cross it off|take it off my to-do list]
you can tick off $todo
you can take $todo off $todolist
you can cross $todo off $todolist
i want $todo off $todolist
i'd like $todo removed from $todolist
i don't have to $todo anymore
i no longer have to $todo
i don't need to be reminded to $todo [anymore|]
i don't need $todo on $todolist anymore
you don't have to remind me to $todo [anymore|]
no need to remind me to $todo [anymore|]
[ok|right|well|good], tick off $todo
to-do done: $todo
$todolist: tick off $todo""".split("\n")
DONE_QUESTIONS = """would you mind taking $todo off $todolist
would you tick off $todo
can we cross $todo off $todolist
can we tick off $todo
could we take $todo off $todolist
may i tick off $todo""".split("\n")

SHOW_COMMANDS = """show $list
show me $list
show [me|us] $list
read $list
read [me|us] $list
read out $list
read $list [out|aloud|out loud|to me|back to me|to us]
read [out|aloud] what's on $list
read me what's on $list
tell me what's on $list
tell [me|us] what is on $list
tell me what i have on $list
tell me everything [on|that's on] $list
list everything on $list
list what's on $list
list the [items|things|entries] on $list
list all [items|the things|entries] on $list
give me $list
give me everything on $list
open $list
display $list
pull up $list
bring up $list
get $list [up|]
check $list
check what's on $list
look at $list
have a look at $list
take a look at $list
go through $list [with me|]
go over $list [with me|]
run through $list [with me|]
run me through $list
walk me through $list
recite $list
let me [see|hear] $list
let me see what's on $list
let me know what's on $list
let's [hear|see] $list
let's [look at|go through|go over|check] $list
let's see what's on $list
call up $list
fetch $list
remind me what's on $list
repeat what's on $list
see what's on $list
say what's on $list
show what's [left|still] on $list
tell me what's [left|still] on $list
find out what's on $list
view $list
name everything on $list
refresh my memory on $list""".split("\n")
SHOW_STATEMENTS = """i [want|need] to [see|hear|check|look at] $list
i'd [like|love] to [see|hear|check] $list
i would like to [see|hear] $list
i want to know what's on $list
i'd like to know what's on $list
i need to know what's on $list
i [forgot|can't remember|don't remember|don't know] what's on $list
i wonder what's on $list
i need $list [now|]
i want $list read to me
i'd like $list read [out|to me]
$list, [read it|show it|read it out|what's on it]
$list contents
[ok|right|so|hm|alright|well], what's on $list
[ok|right|so|hm|alright|well], show me $list
[i'm packing|i'm leaving|i'm getting ready|i'm at the store|i'm in the shop], what's on $list
we want to [see|hear] $list
we need to go through $list
let's have $list""".split("\n")
SHOW_QUESTIONS = """what's on $list
what's on $list
what's on $list [today|now|right now|so far|at the moment|already|again]
what is on $list
what is [still|currently|] on $list
what's [still|left|currently] on $list
what do i have on $list
what do we have on $list
what have i got on $list
what have we got on $list
what did i put on $list
what did we [put|write] on $list
what did i add to $list
what things are on $list
which [things|items] are on $list
which things do i have on $list
what items are on $list
what all is on $list
what else is on $list
is there anything on $list
is there [something|anything] [left|still] on $list
is there anything else on $list
is anything on $list
do i have anything on $list
do we have anything on $list
have i got anything on $list
how many [things|items] are on $list
how many things do i have on $list
how long is $list
how does $list look
what does $list say
what does $list look like
what's in $list
can i [see|hear|have|look at] $list
can we [see|hear|look at|go through|have] $list
could i [see|hear] $list
may i [see|hear] $list
would you mind reading [me|] $list
would you read [me|out] $list
would you tell me what's on $list
can you tell me what's on $list
do you know what's on $list
could you tell me what's on $list
is $list empty
is $list long
is there a lot on $list
have you got $list
$list? what's on it
is $first [still|already|] on $list
do i have $first on $list
do we have $first on $list
did i put $first on $list
have i put $first on $list [already|yet|]
did we [put|write] $first on $list""".split("\n")
SHOW_SHOPPING_STATEMENTS = """i'm [at the store|at the supermarket|in the shop|going shopping|off to the shops|going to the store], what do we need
i'm [at the store|at the supermarket|in the shop|going shopping|off to the shops|going to the store], what do i need to buy
i'm [at the store|at the supermarket|in the shop|going shopping|off to the shops], what's on the list
tell me what we need to buy
i want to know what we need to buy
i forgot what we need to buy""".split("\n")
SHOW_SHOPPING = """what do we need to buy
what do we [have|need] to buy [today|]
what do we need [from the store|from the shop|from the supermarket|at the store|at the supermarket]
what do i [have|need] to buy
what do i need [from the store|from the shop|at the store|at the supermarket]
what [groceries|food] do we need
which groceries do we need
what groceries are on the list
what should i [buy|get|pick up] [at the store|at the shop|at the supermarket|from the store]
what do i have to get [at the store|at the shop|at the supermarket]
what shall i buy at the supermarket
what's left to buy
what is there to buy
is there anything [to buy|we need to buy|we need from the store]
do we need anything [from the store|from the shop|from the supermarket]
do i have to buy anything
do we have to buy anything
what else do we need to buy
what did we want to buy
what did i want to buy
what was i going to buy""".split("\n")
SHOW_TODO_STATEMENTS = """tell me what i have to do
tell me what i have to do [today|]
i want to know what i have to do
i forgot what i [have|need|wanted] to do
i'm bored, what's on my to-do list
let me know what's left to do
remind me what i have to do
remind me what i need to do
tell me my to-dos
read me my to-dos
show me my to-dos
list my to-dos""".split("\n")
SHOW_TODO = """what do i have to do
what do i [have|need] to do
what do i still [have|need] to do
what do we [have|need] to do
what have i got to do
what's left to do
what's there to do
what is [there|left|still] to do
is there anything [i have to do|i need to do|left to do|to do]
do i have anything [to do|left to do|else to do]
what are my to-dos
what are my todos
which to-dos are left
which to-dos do i have
what to-dos do i have
how many to-dos do i have
do i have any to-dos [left|]
what did i want to do
what was i supposed to do
what am i supposed to do
what else do i have to do
what things do i have to do""".split("\n")

ERRORS = ["no such list", "list service offline", "no connection", "not available", "list is locked", "storage full", "timeout", "not found"]
SHOPPING_SAID = (
    "[the shopping list|the shopping list|my shopping list|our shopping list|the grocery list|my grocery list|our grocery list|the"
    " groceries list|the groceries]"
)
TODO_SAID = (
    "[my to-do list|the to-do list|my todo list|the todo list|my to do list|the to do list|my to-dos|our to-do list|my todos|the to-dos|my"
    " list of things to do]"
)


def invented(rng, capital=False):
    """An invented word that is no article."""
    word = any_invented(rng, capital)
    return word if word.lower() != "the" else invented(rng, capital)


def outcome(rng, reply, errors=ERRORS):
    """(result, sentence): nearly always it worked."""
    if not chance(rng, 0.025):
        return {"ok": True}, reply
    error = one_of(rng, errors)
    return {"error": error}, expand(rng, "[Sorry, that didn't work: $e.|That failed: $e.|I couldn't do that, $e.|Sorry, $e.|It didn't work:"
        " $e.]", e=error)


def list_name(rng):
    """A list that is neither shopping nor things to do."""
    p = rng.random()
    if p < 0.25:
        return "packing"
    if p < 0.75:
        return one_of(rng, NAMES)
    if p < 0.84:
        return one_of(rng, OWNERS) + " " + one_of(rng, NAMES)
    if p < 0.93:
        return (
            one_of(rng, ["summer", "winter", "monday", "office", "secret", "boat", "family", "old", "new", "long", "little", "second"]) + ""
            " " + one_of(rng, NAMES)
        )
    return invented(rng) + one_of(rng, ["", "", " " + one_of(rng, NAMES)])


def list_said(rng, name):
    """The list as it is said, with article and braces."""
    if name == "shopping":
        return expand(rng, SHOPPING_SAID)
    if name == "todo":
        return expand(rng, TODO_SAID)
    article = "" if name[0].isupper() and "'s " in name else one_of(rng, ["the ", "the ", "my ", "our "])
    if chance(rng, 0.06):
        return "the list " + one_of(rng, ["called ", "named "]) + copied(name)
    return article + copied(name) + " list"


def list_answered(name):
    return {"shopping": "the shopping list", "todo": "the to-do list"}.get(name, ("" if name[0].isupper() and "'s " in name else "the"
        " ") + name + " list")


def kind_of(rng, name):
    """The things that go on a list of that name."""
    for key in (name, name.split()[-1]):
        if key in KINDS:
            return KINDS[key]
    if name == "shopping":
        p = rng.random()
        return FOOD if p < 0.7 else HOUSEHOLD if p < 0.84 else TOOLS if p < 0.89 else MEDICINE if p < 0.95 else SCHOOL
    return one_of(rng, [FOOD, HOUSEHOLD, TOOLS, MEDICINE, SCHOOL, PACKING, GIFTS])


COUNTABLE = set("""onion|lemon|cucumber|pineapple|watermelon|melon|pumpkin|mop|broom|bucket|hammer|screwdriver|wrench|ladder|padlock|rake|shovel
|thermometer|ruler|calculator|stapler|lunch box|water bottle|backpack|pencil case|passport|book|camera|tent|torch|flashlight|sleeping bag|map
|hat|scarf|jacket|sweater|towel|belt|charger|power bank|pillow|cake|pizza|chicken|turkey|doormat|hose|rope|tape measure|staple gun
|utility knife|picture frame|shower curtain|first aid kit|teddy bear|frisbee|football|laptop|tablet|raincoat|swimsuit|sun hat|beach towel
|pocket knife|thermos|corkscrew|cooler|puzzle|watch for Dad|scarf for Mom|lego set|cookbook|board game|bicycle|telescope|chess set|kite|guitar
|yoga mat|cauliflower|cabbage|lettuce|travel pillow|picnic blanket|can opener|tin opener|compass|planner|diary|sketchbook|necklace
|robot vacuum|drum kit|tea set|skateboard|dollhouse|train set|hairdryer|phone charger|book for Tom|bottle of whisky|smart watch|new phone
|bird feeder|pasta maker|photo album|fountain pen|wool blanket|massage voucher|trip to Japan
|grapefruit|pomegranate""".replace("\n", "").split("|"))
VOWELS = "aeiou"


def thing(rng, kind, counts=True):
    """(as said, as written on the list)"""
    p = rng.random()
    if kind is PEOPLE or kind is WATCH:
        name = one_of(rng, kind)
        if chance(rng, 0.2):
            name = invented(rng, True)
        name = name.lower() if chance(rng, 0.3) else name
        return copied(name), name
    if counts and kind is not GIFTS:
        if p < 0.1:
            n = 2 + int(rng.random() * rng.random() * 23)
            name = (str(n) if chance(rng, 0.4) else in_words(n)) + " " + one_of(rng, COUNTED)
            return copied(name), name
        if p < 0.2:
            name = one_of(rng, UNITS)
            return one_of(rng, [article_for(name), article_for(name), ""]) + copied(name), name
        if p < 0.23:
            name = one_of(rng, ["half a dozen eggs", "half a pound of butter", "half a kilo of tomatoes", "half a loaf of bread", "500 grams of"
                " flour", "200 g of ham",
                                "1 kg of potatoes", "2 liters of milk", "2 litres of milk", "300 ml of cream", "3 kg of flour", "half a cabbage",
                                    "two dozen eggs"])  # fmt: skip
            return copied(name), name
    if p < 0.31 and kind in (FOOD, HOUSEHOLD, SCHOOL):
        name = (
            one_of(rng, QUALITIES if kind is FOOD else ["new", "cheap", "small", "large", "blue", "red", "extra", "spare"]) + ""
            " " + one_of(rng, kind)
        )
    elif p < 0.37:
        name = expand(rng, "[$word|$word|$word|$word sauce|$word tea|$word cream|$word paste|$word bread|$word oil|$word cleaner|$word powder"
            "|$word bars]", word=invented(rng))
    else:
        name = one_of(rng, kind)
    if name in COUNTABLE:
        return one_of(rng, [article_for(name), article_for(name), "", "the "]) + copied(name), name
    if not counts:
        return copied(name), name
    some = "some " if kind in (FOOD, MEDICINE) or name.endswith("s") and "ss" not in name else ""
    return one_of(rng, ["", "", "", "", "", some, some, "the "]) + copied(name), name


def article_for(name):
    return "an " if name[0] in VOWELS else "a "


def joined(rng, texts):
    """One text of one to five parts."""
    if len(texts) == 1:
        return texts[0]
    if len(texts) == 2:
        return one_of(rng, [" and ", " and ", " and ", " and ", " & ", ", ", " as well as ", " plus ", " and also "]).join(texts)
    how = rng.random()
    if how < 0.6:
        return ", ".join(texts[:-1]) + one_of(rng, [" and ", " and ", ", and "]) + texts[-1]
    if how < 0.8:
        return ", ".join(texts)
    return " and ".join(texts)


def things(rng, kind, most=5, counts=True):
    """(text, items)"""
    n = min(most, one_of(rng, [1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5]))
    found = {}
    while len(found) < n:
        said, name = thing(rng, kind, counts)
        found.setdefault(name, said)
    return joined(rng, list(found.values())), list(found)


def one_todo(rng):
    text = expand(rng, one_of(rng, TODO_FORMS), **{slot: one_of(rng, values) for slot, values in TODO_VALUES.items()})
    if chance(rng, 0.1):
        word = invented(rng, True)
        text = expand(rng, "[call $w|visit $w|email Mrs $w|go to the $w meeting|finish the $w report|pick up $w from the station|write to $w|order"
            " the $w tickets]", w=word)
    if chance(rng, 0.14):
        text += " " + one_of(rng, TIMES)
    return text.lower() if chance(rng, 0.25) else text


def todos(rng, buying=True):
    """(text, items): mostly one."""
    n = 1 if chance(rng, 0.86) else 2 if chance(rng, 0.75) else 3
    found = []
    while len(found) < n:
        text = one_todo(rng)
        if text not in found and (buying or not text.startswith(("buy ", "get ", "order "))) and (n == 1 or " and " not in text):
            found.append(text)
    return ", ".join(map(copied, found[:-1])) + (" and " if n > 1 else "") + copied(found[-1]), found


def one_form(rng, commands, statements, questions, weights=(0.55, 0.3)):
    """(pattern, form)"""
    p = rng.random()
    if p < weights[0]:
        pattern = one_of(rng, commands)
        return pattern, "statement" if pattern.startswith(("let's", "also", "don't")) else "command"
    if p < weights[0] + weights[1] or not questions:
        return one_of(rng, statements), "statement"
    return one_of(rng, questions), "question"


def spoken(items):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capital(text):
    return text[0].upper() + text[1:]


def several(items):
    """Whether they "are", not "is"."""
    return len(items) > 1 or items[0].split(" of ")[0].endswith("s") and not items[0].endswith("ss")


def add_call(rng, text, form, name, items):
    where = list_answered(name)
    if name == "todo":
        pattern = (
            '[On your to-do list: $i.|Noted: $i.|OK, I put it on your to-do list: $i.|Added: $i.|I wrote it down: $i.|"$i" is on the to-do'
            ' list.]'
        )
    elif not several(items):
        pattern = "[$c is on $w.|Added $i to $w.|I put $i on $w.|OK, $i is on $w now.|Done, $i is on the list.|Noted: $i.|$c added.|$i, on $w.]"
    else:
        pattern = "[$c are on $w.|Added $i to $w.|I put $i on $w.|OK, $i are on $w now.|Done, $i are on the list.|Noted: $i.]"
    result, reply = outcome(rng, capital(expand(rng, pattern, i=spoken(items), c=capital(spoken(items)), w=where)))
    return Request(text, form, [("add_to_list", {"list": name, "items": items})], [result], reply)


def remove_call(rng, text, form, name, items):
    pattern = "[Removed $i from $w.|I took $i off $w.|OK, $i is off $w.|Crossed off: $i.|Done, $i is off the list.|$c, off $w.|Taken off: $i.]"
    if several(items):
        pattern = pattern.replace(" is off", " are off")
    if name == "todo":
        pattern = "[Ticked off: $i.|OK, ticked off: $i.|Done: $i.|I took it off your to-do list: $i.|Off the to-do list: $i.|Crossed off: $i.]"
    result, reply = outcome(rng, capital(expand(rng, pattern, i=spoken(items), c=capital(spoken(items)), w=list_answered(name))))
    return Request(text, form, [("remove_from_list", {"list": name, "items": items})], [result], reply)


def show_call(rng, text, form, name, asked=None):
    """asked: the item whose presence is in question."""
    if chance(rng, 0.025):
        error = one_of(rng, ERRORS)
        reply = expand(rng, "[Sorry, that didn't work: $e.|I couldn't read the list, $e.|Sorry, $e.|It didn't work: $e.]", e=error)
        return Request(text, form, [("show_list", {"list": name})], [{"error": error}], reply)
    n = one_of(rng, [0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6])
    if name == "todo":
        items = list({one_todo(rng): None for _ in range(n)})
    else:
        kind = kind_of(rng, name)
        items = list({thing(rng, kind)[1]: None for _ in range(n)})
    if asked is not None and chance(rng, 0.5) and asked not in items:
        items.insert(int(rng.random() * (len(items) + 1)), asked)
    where, said = list_answered(name), spoken(items) if items else ""
    if asked is not None:
        if asked in items:
            pattern = "[Yes, $a is on $w.|Yes, it is on $w.|Yes, $a is there.|Yes, $a is on the list.]"
        else:
            pattern = "[No, $a is not on $w.|No, it isn't on $w.|No, there is no $a on $w.|No, not yet.]"
        reply = expand(rng, pattern, a=asked, w=where)
    elif not items:
        reply = capital(expand(rng, "[$w is empty.|There is nothing on $w.|Nothing is on $w.|Nothing at all, $w is empty.]", w=where))
    elif "how many" in text or "how long" in text:
        count = "one thing" if len(items) == 1 else in_words(len(items)) + " things"
        reply = capital(expand(rng, "[$n: $i.|There [is|is] $n on $w: $i.]" if len(items) == 1 else "[$n: $i.|There are $n on $w: $i.]", n=count,
            w=where, i=said))
    else:
        reply = capital(expand(rng, "[On $w: $i.|$w has $i.|You have $i on $w.|There is $i on $w.|It says: $i.|$i.|Here it is: $i.]", w=where,
            i=said))
    return Request(text, form, [("show_list", {"list": name})], [{"items": items}], reply)


def fill(rng, pattern, name, kind):
    """(values, items) for a pattern with things."""
    if "$plain" in pattern or "$first" in pattern and "$items" not in pattern:
        kind = FOOD if kind is not HOUSEHOLD and "$plain" in pattern else kind
        text, items = things(rng, kind, 1 if "$first" in pattern or " is " in pattern or " it" in pattern else 2, counts=False)
        if "left" in pattern or "not" in pattern or "no " in pattern or "n't" in pattern:
            text = re.sub(r" and also | and | as well as | plus |, | & ", " or ", text)
        return {"plain": text, "first": text}, items
    single = " is " in pattern or "needs to" in pattern or "take it" in pattern or "belongs" in pattern or " it" in pattern or "gets" in pattern
    text, items = things(rng, kind, 1 if single else 5)
    while single and several(items):
        text, items = things(rng, kind, 1)
    return {"items": text}, items


def add(rng):
    p = rng.random()
    if p < 0.34:
        text, items = None, None
        pattern, form = one_form(rng, TODO_COMMANDS, TODO_STATEMENTS, TODO_QUESTIONS)
        text, items = todos(rng, "$todo_not_buy" not in pattern)
        if '"' in pattern and len(items) > 1:
            text, items = copied(items[0]), items[:1]
        return add_call(rng, expand(rng, pattern, todo=text, todo_not_buy=text, todolist=list_said(rng, "todo")), form, "todo", items)
    if p < 0.62:
        pattern, form = one_form(rng, SHOP_COMMANDS, SHOP_STATEMENTS, SHOP_QUESTIONS, (0.42, 0.5))
        values, items = fill(rng, pattern, "shopping", kind_of(rng, "shopping"))
        if "$first" in pattern and "first" not in values:
            values["first"] = values["items"]
        return add_call(rng, expand(rng, pattern, **values), form, "shopping", items)
    name = "shopping" if p < 0.78 else list_name(rng)
    pattern, form = one_form(rng, ADD_COMMANDS, ADD_STATEMENTS, ADD_QUESTIONS)
    values, items = fill(rng, pattern, name, kind_of(rng, name))
    newlist = ("" if name[0].isupper() and "'s " in name else "a ") + (name if name in ("shopping",) else copied(name)) + " list"
    if name[0] in VOWELS:
        newlist = "an" + newlist[1:]
    return add_call(rng, expand(rng, pattern, list=list_said(rng, name), newlist=newlist, **values), form, name, items)


def definite(values):
    """Things that stand on the list already."""
    return {slot: text.replace("some {", "the {") for slot, text in values.items()}


def remove(rng):
    p = rng.random()
    if p < 0.27:
        pattern, form = one_form(rng, DONE_COMMANDS, DONE_STATEMENTS, DONE_QUESTIONS)
        todo = one_todo(rng)
        return remove_call(rng, expand(rng, pattern, todo=copied(todo), todolist=list_said(rng, "todo")), form, "todo", [todo])
    if p < 0.55:
        pattern, form = one_form(rng, BOUGHT_COMMANDS, BOUGHT_STATEMENTS, [], (0.42, 0.58))
        values, items = fill(rng, pattern, "shopping", kind_of(rng, "shopping"))
        return remove_call(rng, expand(rng, pattern, **definite(values)), form, "shopping", items)
    name = "shopping" if p < 0.74 else list_name(rng)
    pattern, form = one_form(rng, REMOVE_COMMANDS, REMOVE_STATEMENTS, REMOVE_QUESTIONS)
    values, items = fill(rng, pattern, name, kind_of(rng, name))
    return remove_call(rng, expand(rng, pattern, list=list_said(rng, name), **definite(values)), form, name, items)


def show(rng):
    p = rng.random()
    if p < 0.12:
        if chance(rng, 0.25):
            return show_call(rng, expand(rng, one_of(rng, SHOW_SHOPPING_STATEMENTS)), "statement", "shopping")
        return show_call(rng, expand(rng, one_of(rng, SHOW_SHOPPING)), "question", "shopping")
    if p < 0.26:
        if chance(rng, 0.35):
            text = expand(rng, one_of(rng, SHOW_TODO_STATEMENTS))
            return show_call(rng, text, "command" if text.startswith(("tell", "let", "remind", "read", "show", "list")) else "statement", "todo")
        return show_call(rng, expand(rng, one_of(rng, SHOW_TODO)), "question", "todo")
    name = "shopping" if p < 0.46 else "todo" if p < 0.6 else list_name(rng)
    pattern, form = one_form(rng, SHOW_COMMANDS, SHOW_STATEMENTS, SHOW_QUESTIONS, (0.45, 0.2))
    if "$first" not in pattern:
        return show_call(rng, expand(rng, pattern, list=list_said(rng, name)), form, name)
    asked = copied(one_todo(rng)) if name == "todo" else thing(rng, kind_of(rng, name), counts=False)[0]
    item = asked[asked.index("{") + 1:-1]
    if chance(rng, 0.3) and name == "shopping":
        return show_call(rng, expand(rng, pattern, list="the list", first=asked), form, name, item)
    return show_call(rng, expand(rng, pattern, list=list_said(rng, name), first=asked), form, name, item)


AND_MORE = """and $items
and $items
and $items too
and $items as well
also $items
$items too
$items as well
and also $items
and put $items on it too
and add $items
oh, and $items
ah, and $items
plus $items
and some more: $items
add $items too
add $items as well
put $items on it too
put $items on there as well
and then $items
then also $items
and while you're at it, $items
we need $items too
and we need $items
i forgot $items
and don't forget $items
one more: $items
and one more thing: $items
$items also goes on it
and how about $items
can you add $items too
could you put $items on it too
and add $items to it
put $items on that list too
add $items to that list""".split("\n")
AND_TODO = """and to $todo
and $todo
and also to $todo
and $todo too
also $todo
also to $todo
oh, and to $todo
and i have to $todo
and i also have to $todo
and then i have to $todo
and remind me to $todo as well
remind me to $todo too
add $todo too
and put $todo on it too
and add $todo
one more: $todo
and that i have to $todo
and one more thing: $todo
plus $todo""".split("\n")
OTHER_LIST = """and on $list too
and on $list as well
put it on $list too
put $that on $list as well
put the same on $list
the same on $list
the same for $list
and the same on $list
add $that to $list too
add $that to $list as well
also on $list
also put $that on $list
and to $list as well
on $list too
i want $that on $list too
can you put $that on $list too
could $that go on $list too
and on $list""".split("\n")
UNDO_ADD = """no, take $that off again
take $that off again
take $that back off
remove $that again
and remove $that again
no, remove $that
delete $that again
sorry, take $that off again
oh, we have $that, take $that off again
actually, take $that off
actually, remove $that again
never mind, take $that off again
never mind, remove $that
scratch that, take $that off again
hm, no, delete $that again
cross $that off again
undo that, take $that off
i don't want $that on it after all
$that can come off again
wait, remove $that
oops, take $that off again""".split("\n")
NOW_SHOW = """and what's on it now
what's on it now
what else is on it
what else is on there
what's on that list now
read it to me
read it out
read me the whole list
show me the list
show it to me
show me the whole thing
and what else is there
and now read it out
let me hear the whole list
how does the list look now
tell me what's on it
so what's on it
and what's left on it
what's left
what's still on it
what is on it altogether
give me the whole list
now show me the list
what all is on there
can i see it now""".split("\n")
AND_OFF = """and $items
and $items too
and $items as well
$items too
$items as well
also $items
and also $items
and take $items off too
take $items off too
take $items off as well
remove $items too
remove $items as well
and remove $items
and delete $items
delete $items too
cross off $items as well
cross $items off too
oh, and $items
and then $items
plus $items
and $items can go too
$items can come off too
i don't need $items either
can you take $items off too
we don't need $items either""".split("\n")
UNDO_OFF = """no, put $that back
put $that back
put $that back on
put $that on again
and put $that back on
add $that again
no, add $that again
sorry, put $that back
actually, put $that back on
wait, put $that back
oops, put $that back on
oh no, we still need $that
no, i still need $that on it
put $that back on the list
undo that, put $that back
never mind, put $that back on
hm, no, put $that on again
i want $that back on it
we do need $that after all
can you put $that back""".split("\n")
SHOWN_ADD = """add $items
add $items to it
add $items to that
add $items to that list
put $items on it
put $items on it too
put $items on there
and put $items on it
and add $items
and add $items to it
also add $items
then add $items
ok, add $items
ok, put $items on it
$items is missing, add it
put $items on as well
i want $items on it too
then put $items on it as well
can you add $items to it
stick $items on it too""".split("\n")
SHOWN_REMOVE = """take $items off
take $items off it
take $items off that list
remove $items
remove $items from it
and remove $items
and take $items off it
ok, remove $items
ok, take $items off
cross off $items
cross $items off
tick off $items
delete $items
delete $items from it
ok, cross off $items
$items can come off
$items can go
then take $items off
can you take $items off it
strike $items""".split("\n")
SHOW_OTHER = """and $list
and what's on $list
and on $list
what about $list
and now $list
now $list
and $list too
how about $list
$list too
now show me $list
and what about $list
$list as well
also $list
and read me $list
the same for $list
and the same for $list
and $list, what's on that
then $list
show me $list too
can i hear $list too""".split("\n")
IMPERATIVES = set("put add take remove delete cross read show tell give let undo stick tick strike remind scratch then".split()) - {"then",
    "undo", "scratch"}


def form_of(text):
    """The form of a follow-up by its first word; only plain imperatives count as commands."""
    first = text.split()[0]
    if first in ("can", "could", "what", "what's", "how"):
        return "question"
    return "command" if first in IMPERATIVES else "statement"


def more(rng, name, patterns, gone=()):
    """(text, form, items) with new things for a list; None if they stand in "gone" already."""
    pattern = one_of(rng, patterns)
    if name == "todo":
        item = one_todo(rng)
        text, items = copied(item), [item]
    else:
        single = " is " in pattern or "either" in pattern or "goes" in pattern
        text, items = things(rng, kind_of(rng, name), 1 if single else 3)
    if set(items) & set(gone):
        return None
    text = expand(rng, pattern, items=text, todo=text)
    return text, form_of(text), items


def that(rng, items):
    return "them" if len(items) > 1 else "it"


def another_list(rng, name):
    other = one_of(rng, ["shopping", "todo", list_name(rng), list_name(rng), list_name(rng)])
    return None if other == name else other


def after_add(rng, arguments):
    p = rng.random()
    name, items = arguments["list"], arguments["items"]
    if p < 0.5:
        found = more(rng, name, AND_TODO if name == "todo" else AND_MORE, items)
        return found and add_call(rng, found[0], found[1], name, found[2])
    if p < 0.62 and name != "todo":
        other = another_list(rng, name)
        if other in (None, "todo"):
            return None
        text = expand(rng, one_of(rng, OTHER_LIST), list=list_said(rng, other), that=that(rng, items))
        return add_call(rng, text, form_of(text), other, items)
    if p < 0.82:
        text = expand(rng, one_of(rng, UNDO_ADD), that=that(rng, items))
        return remove_call(rng, text, form_of(text), name, items)
    text = expand(rng, one_of(rng, NOW_SHOW))
    return show_call(rng, text, form_of(text), name)


def after_remove(rng, arguments):
    p = rng.random()
    name, items = arguments["list"], arguments["items"]
    if p < 0.45:
        found = more(rng, name, AND_OFF[:21] if name == "todo" else AND_OFF, items)
        return found and remove_call(rng, found[0], found[1], name, found[2])
    if p < 0.75:
        text = expand(rng, one_of(rng, UNDO_OFF), that=that(rng, items))
        return add_call(rng, text, form_of(text), name, items)
    text = expand(rng, one_of(rng, NOW_SHOW))
    return show_call(rng, text, form_of(text), name)


def after_show(rng, arguments):
    p = rng.random()
    name = arguments["list"]
    if p < 0.4:
        found = more(rng, name, SHOWN_ADD)
        return add_call(rng, found[0], found[1], name, found[2])
    if p < 0.7:
        found = more(rng, name, SHOWN_REMOVE)
        return remove_call(rng, found[0], found[1], name, found[2])
    other = another_list(rng, name)
    if other is None:
        return None
    text = expand(rng, one_of(rng, SHOW_OTHER), list=list_said(rng, other))
    return show_call(rng, text, form_of(text), other)


REQUESTS = {"add_to_list": (11, add), "remove_from_list": (6, remove), "show_list": (5, show)}
FOLLOWS = {"add_to_list": after_add, "remove_from_list": after_remove, "show_list": after_show}
