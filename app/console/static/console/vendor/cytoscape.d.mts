import cytoscape from "cytoscape";
export default cytoscape;
