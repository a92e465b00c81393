"""Places to ask the time or the weather of.

`place(rng)` is a name that needs no article ("Oslo", "Paris, Texas", "new zealand"); `mentioned(rng)` gives (text, value)
and knows some with an article too: ("the {Netherlands}", "Netherlands"). About one in six names is made up.
"""

from grammar import chance, copied, invented, one_of


def listed(text):
    return text.strip().replace("\n", "|").split("|")


CITIES = listed("""
Oslo|Paris|London|Berlin|Madrid|Rome|Lisbon|Vienna|Prague|Warsaw|Budapest|Athens|Dublin|Edinburgh|Glasgow|Cardiff|Belfast|Leeds
Manchester|Liverpool|Bristol|Birmingham|Sheffield|Newcastle|Nottingham|Oxford|Cambridge|Brighton|Bath|York|Exeter|Plymouth
Norwich|Aberdeen|Inverness|Dundee|Cork|Galway|Limerick|Amsterdam|Rotterdam|Utrecht|Brussels|Antwerp|Ghent|Bruges|Luxembourg
Cologne|Hamburg|Munich|Frankfurt|Stuttgart|Leipzig|Dresden|Hanover|Bremen|Nuremberg|Heidelberg|Freiburg|Zurich|Geneva|Basel|Bern
Lucerne|Lausanne|Salzburg|Graz|Innsbruck|Linz|Milan|Turin|Venice|Florence|Naples|Bologna|Palermo|Verona|Genoa|Pisa|Siena|Bari
Barcelona|Seville|Valencia|Bilbao|Granada|Malaga|Toledo|Porto|Coimbra|Faro|Lyon|Marseille|Nice|Bordeaux|Toulouse|Lille|Nantes
Strasbourg|Rennes|Grenoble|Dijon|Avignon|Copenhagen|Aarhus|Odense|Stockholm|Gothenburg|Malmo|Uppsala|Helsinki|Tampere|Turku
Bergen|Trondheim|Stavanger|Tromso|Reykjavik|Tallinn|Riga|Vilnius|Kaunas|Minsk|Kyiv|Lviv|Odesa|Moscow|Saint Petersburg|Kazan
Vladivostok|Krakow|Gdansk|Wroclaw|Poznan|Brno|Bratislava|Ljubljana|Zagreb|Split|Dubrovnik|Sarajevo|Belgrade|Skopje|Tirana|Sofia
Bucharest|Cluj|Chisinau|Thessaloniki|Patras|Istanbul|Ankara|Izmir|Antalya|Nicosia|Valletta|Beirut|Damascus|Amman|Jerusalem
Tel Aviv|Haifa|Cairo|Alexandria|Luxor|Tunis|Algiers|Rabat|Casablanca|Marrakesh|Fez|Tangier|Dakar|Accra|Lagos|Abuja|Abidjan
Nairobi|Mombasa|Kampala|Kigali|Addis Ababa|Khartoum|Mogadishu|Dar es Salaam|Lusaka|Harare|Windhoek|Gaborone|Maputo|Johannesburg
Pretoria|Cape Town|Durban|Luanda|Kinshasa|Dubai|Abu Dhabi|Doha|Riyadh|Jeddah|Kuwait City|Muscat|Manama|Baghdad|Tehran|Isfahan
Tbilisi|Yerevan|Baku|Tashkent|Samarkand|Almaty|Astana|Kabul|Karachi|Lahore|Islamabad|Delhi|New Delhi|Mumbai|Kolkata|Chennai
Bangalore|Hyderabad|Pune|Jaipur|Goa|Kathmandu|Thimphu|Dhaka|Colombo|Kandy|Yangon|Bangkok|Chiang Mai|Phuket|Hanoi
Ho Chi Minh City|Da Nang|Phnom Penh|Vientiane|Kuala Lumpur|Penang|Singapore|Jakarta|Surabaya|Manila|Cebu|Hong Kong|Macau|Taipei
Beijing|Shanghai|Shenzhen|Guangzhou|Chengdu|Wuhan|Xi'an|Harbin|Lhasa|Ulaanbaatar|Seoul|Busan|Pyongyang|Tokyo|Osaka|Kyoto|Sapporo
Nagoya|Hiroshima|Fukuoka|Sydney|Melbourne|Brisbane|Perth|Adelaide|Hobart|Darwin|Canberra|Cairns|Alice Springs|Auckland
Wellington|Christchurch|Dunedin|Queenstown|Suva|Honolulu|Anchorage|Fairbanks|Juneau|Seattle|Portland|San Francisco|Oakland
Sacramento|Los Angeles|San Diego|San Jose|Las Vegas|Reno|Phoenix|Tucson|Albuquerque|Santa Fe|Salt Lake City|Boise|Denver|Boulder
Cheyenne|Billings|Omaha|Kansas City|St. Louis|Minneapolis|Duluth|Milwaukee|Chicago|Detroit|Cleveland|Cincinnati|Columbus
Indianapolis|Louisville|Nashville|Memphis|Little Rock|New Orleans|Houston|Dallas|Austin|San Antonio|El Paso|Tulsa|Atlanta
Savannah|Charleston|Charlotte|Raleigh|Richmond|Washington|Baltimore|Philadelphia|Pittsburgh|Buffalo|New York|New York City
Brooklyn|Boston|Cape Cod|Burlington|Miami|Orlando|Tampa|Key West|Jacksonville|Toronto|Montreal|Ottawa|Quebec City|Halifax
St. John's|Winnipeg|Regina|Saskatoon|Calgary|Edmonton|Vancouver|Victoria|Whitehorse|Yellowknife|Iqaluit|Mexico City|Cancun
Guadalajara|Monterrey|Oaxaca|Tijuana|Havana|Santiago|Kingston|Nassau|Port-au-Prince|San Juan|Guatemala City|San Salvador|Managua
Panama City|Bogota|Medellin|Cartagena|Caracas|Quito|Guayaquil|Lima|Cusco|Arequipa|La Paz|Santa Cruz|Asuncion|Montevideo
Buenos Aires|Cordoba|Mendoza|Rosario|Ushuaia|Valparaiso|Punta Arenas|Rio|Rio de Janeiro|Sao Paulo|Salvador|Recife|Fortaleza
Manaus|Brasilia|Porto Alegre|Curitiba|Nuuk|Longyearbyen|Torshavn|Nome|Barrow
""")
COUNTRIES = listed("""
Norway|Sweden|Denmark|Finland|Iceland|Ireland|Scotland|Wales|England|France|Spain|Portugal|Italy|Germany|Austria|Switzerland
Belgium|Poland|Hungary|Romania|Bulgaria|Greece|Turkey|Croatia|Slovenia|Slovakia|Serbia|Bosnia|Montenegro|Albania|Kosovo|Ukraine
Moldova|Belarus|Russia|Estonia|Latvia|Lithuania|Malta|Cyprus|Monaco|Andorra|Liechtenstein|San Marino|Morocco|Algeria|Tunisia
Libya|Egypt|Sudan|Ethiopia|Eritrea|Somalia|Kenya|Uganda|Rwanda|Burundi|Tanzania|Zambia|Zimbabwe|Malawi|Mozambique|Angola|Namibia
Botswana|South Africa|Lesotho|Ghana|Nigeria|Cameroon|Senegal|Mali|Niger|Chad|Togo|Benin|Gabon|Liberia|Sierra Leone|Israel|Jordan
Lebanon|Syria|Iraq|Iran|Saudi Arabia|Oman|Yemen|Qatar|Bahrain|Kuwait|India|Pakistan|Afghanistan|Nepal|Bhutan|Bangladesh
Sri Lanka|Kazakhstan|Uzbekistan|Georgia|Armenia|Azerbaijan|Mongolia|China|Taiwan|Japan|South Korea|North Korea|Vietnam|Laos
Cambodia|Thailand|Myanmar|Malaysia|Indonesia|Brunei|East Timor|Australia|New Zealand|Papua New Guinea|Canada|Mexico|Cuba|Jamaica
Haiti|Belize|Guatemala|Honduras|El Salvador|Nicaragua|Costa Rica|Panama|Colombia|Venezuela|Ecuador|Peru|Bolivia|Paraguay|Uruguay
Chile|Argentina|Brazil|Guyana|Suriname
""")
REGIONS = listed("""
Texas|California|Florida|Alaska|Oregon|Nevada|Utah|Arizona|Colorado|Montana|Idaho|Wyoming|Kansas|Nebraska|Iowa|Ohio|Michigan
Wisconsin|Minnesota|Maine|Vermont|New Hampshire|Connecticut|New Jersey|Maryland|Virginia|Kentucky|Tennessee|Louisiana|Alabama
Mississippi|North Dakota|South Carolina|Ontario|Quebec|Manitoba|Nova Scotia|British Columbia|Bavaria|Saxony|Tuscany|Lombardy
Provence|Brittany|Normandy|Catalonia|Andalusia|Galicia|Lapland|Siberia|Patagonia|Queensland|Victoria|Tasmania|New South Wales
Cornwall|Devon|Kent|Essex|Yorkshire|Norfolk|Dorset|Cumbria|Northumberland|Kerry|Donegal|Punjab|Kerala|Rajasthan|Zanzibar
Hokkaido|Kyushu|Yunnan|Tibet|Transylvania|Silesia|Flanders|Wallonia
""")
ISLANDS = listed("""
Hawaii|Bali|Crete|Rhodes|Corfu|Santorini|Mykonos|Sicily|Sardinia|Corsica|Elba|Capri|Mallorca|Ibiza|Menorca|Tenerife|Gran Canaria
Fuerteventura|Lanzarote|La Palma|Madeira|Iceland|Greenland|Jersey|Guernsey|Sark|Skye|Mull|Islay|Jura|Orkney|Shetland|Lewis
Anglesey|Barbados|Aruba|Curacao|Bermuda|Trinidad|Tobago|Martinique|Guadeloupe|Saint Lucia|Antigua|Mauritius|Madagascar|Java
Sumatra|Borneo|Lombok|Fiji|Tonga|Samoa|Tahiti|Bora Bora|Guam|Palau|Okinawa|Jeju|Sylt|Amrum|Texel|Gotland|Bornholm|Svalbard
Saint Helena|Easter Island|Prince Edward Island|Long Island|Staten Island|Maui|Oahu|Kauai|Vancouver Island|Nantucket
Martha's Vineyard|Stewart Island|Kangaroo Island|Lundy|Tristan da Cunha|Pitcairn
""")
TOWNS = listed("""
Whitby|Ludlow|Totnes|Hay-on-Wye|Keswick|Ambleside|Grasmere|Skipton|Hebden Bridge|Stow-on-the-Wold|Chipping Norton
Bury St Edmunds|Lewes|Rye|Hastings|Margate|Whitstable|St Ives|Padstow|Tintagel|Lyme Regis|Glastonbury|Tenby|Conwy|Aberystwyth
Llandudno|Oban|Fort William|Ullapool|Pitlochry|Stirling|Kinsale|Dingle|Westport|Sligo|Kilkenny|Bend|Ashland|Astoria|Truckee|Moab
Taos|Marfa|Sedona|Flagstaff|Durango|Aspen|Telluride|Bozeman|Missoula|Bar Harbor|Stowe|Woodstock|Lake Placid|Ithaca
Saratoga Springs|Gettysburg|Asheville|Boone|Dahlonega|Beaufort|Natchez|Fredericksburg|Galena|Traverse City|Sheboygan|Fargo
Deadwood|Walla Walla|Yakima|Banff|Jasper|Tofino|Kelowna|Moose Jaw|Thunder Bay|Churchill|Gander|Truro|Hallstatt|Kitzbuhel|Zermatt
Davos|Gstaad|Chamonix|Annecy|Colmar|Honfleur|Etretat|Biarritz|Arles|Sintra|Evora|Ronda|Cuenca|San Sebastian|Cortina|Bergamo
Lucca|Orvieto|Matera|Amalfi|Positano|Bled|Piran|Rovinj|Kotor|Ohrid|Nafplio|Kalamata|Rothenburg|Bamberg|Goslar|Husum|Tubingen
Konstanz|Passau|Celle|Delft|Gouda|Leeuwarden|Dinant|Durbuy|Visby|Kiruna|Falun|Alesund|Bodo|Narvik|Rovaniemi|Porvoo|Byron Bay
Broome|Coober Pedy|Wagga Wagga|Ballarat|Dubbo|Kalgoorlie|Rotorua|Wanaka|Kaikoura|Nelson|Napier|Taupo|Stellenbosch|Knysna
Hermanus|Nakuru|Arusha|Pokhara|Leh|Manali|Darjeeling|Shimla|Ooty|Hoi An|Sapa|Luang Prabang|Siem Reap|Ubud|Nara|Nikko|Takayama
""")
WITH_ARTICLE = listed("""
Netherlands|United States|United Kingdom|UK|US|USA|Philippines|Bahamas|Maldives|Seychelles|Faroe Islands|Canary Islands|Azores
Falkland Islands|Shetland Islands|Isle of Man|Isle of Wight|Isle of Skye|Outer Hebrides|Scilly Isles|Czech Republic
Dominican Republic|United Arab Emirates|Congo|Ivory Coast|Gambia|Solomon Islands|Cayman Islands|Cook Islands|Marshall Islands
Galapagos|Florida Keys|Bronx|Lake District|Peak District|Cotswolds|Black Forest|Vatican|Balearic Islands|Dolomites|Highlands
Channel Islands|Yukon|Algarve
""")
SUFFIXES = listed("""
ton|ville|burg|ford|ham|by|stad|berg|field|mouth|wick|port|dale|worth|minster|ley|haven|vik|grad|holm|bury|bridge|land|well|ia
ow|ski|mere
""")
FRONTS = listed("""
New|Old|Upper|Lower|North|South|East|West|Great|Little|Saint|Port|Fort|Mount|Lake|San|Santa|Castle|Bad|Los|El|Point|Cape|Glen
Kirk
""")
BACKS = listed("""
Springs|Falls|Bay|Beach|Creek|Hills|Valley|Island|Harbor|Harbour|Junction|Crossing|Green|Heath|Ridge|Grove|Rapids|Heights|Park
City|Lake|Cove|Rock|Point|Common|Sands|Regis|Mills
""")
WORDS = listed("""
Silver|Stone|Cedar|Maple|Raven|Fox|Clear|Black|White|Red|Elk|Bear|Pine|Rose|Moon|Thorn|Ash|Oak|Willow|Copper|Iron|Honey|Eagle
Salt|Winter|Summer|Mill|King's|Bishop's|Miller's|Wolf|Otter|Amber|Long|Broken|Crooked|Sandy|Windy|Green|Golden|Apple|Heron
""")
STATES = listed("""
Texas|Ohio|Maine|Ontario|Oregon|Georgia|Kansas|Scotland|Ireland|France|Spain|Chile|Kentucky|Tasmania|Alberta|Victoria|Norway
Italy
""")
TWINS = listed("""
Paris|Portland|Springfield|London|Athens|Birmingham|Cambridge|Dublin|Moscow|Perth|Richmond|Manchester|Naples|Lebanon|Hamilton
Newport
""")
KNOWN = [CITIES] * 11 + [COUNTRIES] * 4 + [REGIONS] * 2 + [ISLANDS] * 2 + [TOWNS] * 6


def made_up(rng):
    """A place that is on no map."""
    word = invented(rng, True)
    word = "Vell" if word in ("The", "A", "An", "My", "Our", "Some") else word
    kind = int(rng.random() * 6)
    if kind == 0:
        return word
    if kind == 1:
        return word + one_of(rng, SUFFIXES)
    if kind == 2:
        return one_of(rng, FRONTS) + " " + word
    if kind == 3:
        return one_of(rng, WORDS) + " " + one_of(rng, BACKS)
    if kind == 4:
        return word + " " + one_of(rng, BACKS)
    stem = one_of(rng, WORDS)
    return stem.replace("'s", "s") + one_of(rng, SUFFIXES)


def place(rng):
    """A name without an article, now and then typed in lower case or with its state."""
    if chance(rng, 0.17):
        name = made_up(rng)
    elif chance(rng, 0.03):
        name = one_of(rng, TWINS) + ", " + one_of(rng, STATES)
    else:
        name = one_of(rng, one_of(rng, KNOWN))
    return name.lower() if chance(rng, 0.12) else name


def mentioned(rng):
    """(text with braces, value) of a place; some have the article that the value lacks."""
    if chance(rng, 0.06):
        name = one_of(rng, WITH_ARTICLE)
        name = name.lower() if len(name) > 3 and chance(rng, 0.12) else name
        return "the " + copied(name), name
    name = place(rng)
    return copied(name), name
